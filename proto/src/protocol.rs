//! Versions of the agents' protocol. Agents and replicas are upgraded at different times, so both say which versions
//! they speak, use what both know, and go on: a node beats whatever its agent lacks.

use std::fmt;

/// The versions that one end speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolRange {
    pub min: u32,
    pub max: u32,
}

/// The versions that this build speaks, as an agent and as a replica.
pub const AGENT_PROTOCOL: ProtocolRange = ProtocolRange { min: 1, max: 1 };

impl ProtocolRange {
    /// As it came over the wire. A build from before versions says nothing and speaks version 1.
    pub fn of_wire(min: u32, max: u32) -> Self {
        Self { min: min.max(1), max: max.max(1) }
    }

    /// What the other end lacks of this end's protocol, in words; `None` if it speaks all of it.
    pub fn lacking(self, other: Self) -> Option<String> {
        if other.max >= self.max {
            return None;
        }
        let known = other.max;
        Some(match self.max - known {
            1 => format!("speaks version {known} of the agents' protocol: what version {} added is not used", self.max),
            _ => format!(
                "speaks version {known} of the agents' protocol: what versions {} to {} added is not used",
                known + 1,
                self.max
            ),
        })
    }
}

impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "versions {} to {}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_that_lacks_something_is_named_and_the_other_is_not() {
        let (old, new) = (ProtocolRange::of_wire(0, 0), ProtocolRange::of_wire(1, 3));
        assert_eq!(old, ProtocolRange { min: 1, max: 1 });
        assert_eq!(old.lacking(new), None, "what the newer end has in addition concerns that end");
        assert_eq!(old.lacking(old), None);
        let lacking = new.lacking(old).unwrap();
        assert_eq!(lacking, "speaks version 1 of the agents' protocol: what versions 2 to 3 added is not used");
        let one = ProtocolRange::of_wire(1, 2).lacking(old).unwrap();
        assert_eq!(one, "speaks version 1 of the agents' protocol: what version 2 added is not used");
    }
}
