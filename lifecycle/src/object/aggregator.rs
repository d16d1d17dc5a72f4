//! Aggregators: clients that may carry many nodes on one stream, and the nodes that each may carry.

use serde::{Deserialize, Serialize};

use crate::object::record::{RecordKey, Stored, Versioned};
use crate::rehearsal;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::violation::{AccessViolation, NameViolation};

/// How many aggregators a cluster can know.
pub const AGGREGATORS_MAX: usize = 10_000;

/// How many patterns one scope can have. Even patterns of the greatest length fit into a record together.
pub const PATTERNS_MAX: usize = 250;

/// A pattern that ends in this stands for every name that begins like it.
const REST: char = '*';

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AggregatorRecord {
    pub name: Text,
    /// Node names, or prefixes that end in `*`.
    pub nodes: Box<[Text]>,
    /// From the rehearsal level on.
    #[serde(skip)]
    pub note: Text,
}

impl AggregatorRecord {
    pub fn may_carry(&self, node: &str) -> bool {
        self.nodes.iter().any(|pattern| match pattern.strip_suffix(REST) {
            Some(prefix) => node.starts_with(prefix),
            None => *pattern == node,
        })
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        name::dns_subdomain(&self.name).map_err(|rule| Invalid::new("name", rule))?;
        if self.nodes.len() > PATTERNS_MAX {
            let (count, most) = (self.nodes.len() as u64, PATTERNS_MAX as u64);
            return Err(Invalid::new("nodes", AccessViolation::TooManyPatterns { count, most }));
        }
        self.nodes.iter().enumerate().try_for_each(|(index, pattern)| check_pattern(index, pattern))
    }
}

/// A prefix need not be a name, but it must be able to begin one.
fn check_pattern(index: usize, pattern: &Text) -> Result<(), Invalid> {
    let wrong = |rule: NameViolation| Invalid::new(format!("nodes[{index}]"), rule);
    match pattern.strip_suffix(REST) {
        None => name::dns_subdomain(pattern).map_err(wrong),
        Some("") => Ok(()),
        Some(prefix) => name::dns_subdomain(&format!("{prefix}x")).map_err(wrong),
    }
}

impl Versioned for AggregatorRecord {
    const NEWEST: u8 = rehearsal::NOTE_VERSION;

    fn version(&self) -> u8 {
        if self.note.is_empty() { 1 } else { rehearsal::NOTE_VERSION }
    }

    fn encode_later(&self, version: u8, bytes: Vec<u8>) -> Vec<u8> {
        rehearsal::encode_note(&self.note, version, bytes)
    }

    fn decode_later<'a>(&mut self, version: u8, bytes: &'a [u8]) -> Result<&'a [u8], postcard::Error> {
        let (note, rest) = rehearsal::decode_note(version, bytes)?;
        self.note = note;
        Ok(rest)
    }
}

impl Stored for AggregatorRecord {
    type Key = Text;

    fn key(&self) -> Text {
        self.name.clone()
    }

    fn record_key(name: &Text) -> RecordKey {
        RecordKey::Aggregator { name: name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(nodes: &[&str]) -> AggregatorRecord {
        let nodes = nodes.iter().map(|node| Text::from(*node)).collect();
        AggregatorRecord { name: Text::from("rack-1"), nodes, note: Text::default() }
    }

    #[test]
    fn a_scope_holds_names_and_prefixes() {
        let scope = scope(&["a", "rack-1-*"]);
        assert!(scope.check().is_ok());
        for (node, expected) in [("a", true), ("ab", false), ("rack-1-", true), ("rack-1-7", true), ("rack-10", false)]
        {
            assert_eq!(scope.may_carry(node), expected, "{node}");
        }
    }

    #[test]
    fn a_pattern_must_be_able_to_match_a_name() {
        for wrong in ["", "A*", "a b", "*a", "-*"] {
            assert!(scope(&[wrong]).check().is_err(), "{wrong:?}");
        }
        assert!(scope(&["*"]).check().is_ok());
    }
}
