//! Behaviours of a simulated node.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Beats and posts a healthy status: it ends every other behaviour.
    Resume,
    /// A hung machine: neither beats nor posts, but its connection stays open and its pods run on.
    Silence,
    /// A dead machine: its connection is cut, its pods are gone, and it does not come back by itself.
    Kill,
    /// Silent and live in turns, each for one and a half times the grace.
    Flap,
    /// Posts that its disk is full; it stays ready.
    Pressure,
    /// Its pods take three seconds to start and to stop.
    Slow,
    /// Its pods never stop; those told to stop do so when it resumes.
    Stuck,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a behaviour: use resume, silence, kill, flap, pressure, slow or stuck")]
pub struct UnknownBehaviour(pub String);

impl Behaviour {
    pub const ALL: [Self; 7] =
        [Self::Resume, Self::Silence, Self::Kill, Self::Flap, Self::Pressure, Self::Slow, Self::Stuck];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Silence => "silence",
            Self::Kill => "kill",
            Self::Flap => "flap",
            Self::Pressure => "pressure",
            Self::Slow => "slow",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Behaviour {
    type Err = UnknownBehaviour;

    fn from_str(text: &str) -> Result<Self, UnknownBehaviour> {
        let named = Self::ALL.into_iter().find(|behaviour| behaviour.as_str() == text);
        named.ok_or_else(|| UnknownBehaviour(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_behaviour_is_refused_with_the_known_names() {
        let unknown = "sulk".parse::<Behaviour>().unwrap_err().to_string();
        for behaviour in Behaviour::ALL {
            assert_eq!(behaviour.to_string().parse(), Ok(behaviour));
            assert!(unknown.contains(behaviour.as_str()), "{unknown}");
        }
    }
}
