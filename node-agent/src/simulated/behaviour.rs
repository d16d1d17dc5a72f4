//! The parts a simulated node can play.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Beats, and posts that all is well: what ends every other behaviour.
    Resume,
    /// A hung machine: neither beats nor posts, but its connection stays open.
    Silence,
    /// A dead machine: its connection is cut, and it does not come back by itself.
    Kill,
    /// Silent and back in turns, each for one and a half times the grace.
    Flap,
    /// Posts that its disk is full; it stays ready.
    Pressure,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a behaviour: use resume, silence, kill, flap or pressure")]
pub struct UnknownBehaviour(pub String);

impl Behaviour {
    pub const ALL: [Self; 5] = [Self::Resume, Self::Silence, Self::Kill, Self::Flap, Self::Pressure];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Silence => "silence",
            Self::Kill => "kill",
            Self::Flap => "flap",
            Self::Pressure => "pressure",
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
