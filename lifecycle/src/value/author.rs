//! Authors: who did something, as it is stored. The words are made where it is read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Author {
    Operator {
        /// Cut to a readable length.
        user: Text,
    },
    /// The leader, on its own account.
    Controller,
    Replica {
        id: ReplicaId,
    },
    /// The agent of the node that it is about.
    Agent,
}

/// How much of a user's name is kept.
const USER_MAX: usize = 128;

// === impl Author ===

impl Author {
    pub fn operator(user: &str) -> Self {
        Self::Operator { user: Text::clipped(user, USER_MAX) }
    }
}

/// In words for people: `alice`, `the controller`, `replica 2`, `its agent`.
impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator { user } => fmt::Display::fmt(user, f),
            Self::Controller => f.write_str("the controller"),
            Self::Replica { id } => write!(f, "replica {id}"),
            Self::Agent => f.write_str("its agent"),
        }
    }
}
