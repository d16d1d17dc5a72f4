//! Origins: who asks for a command.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::object::replica::ReplicaId;
use crate::value::text::Text;

/// The writer of a command. A controller's proposals are bound to the term that made them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Operator {
        user: Text,
    },
    Controller {
        term: u64,
    },
    Replica {
        id: ReplicaId,
    },
    /// The node's own agent, or an aggregator that carries it.
    Node {
        name: Text,
    },
}

/// The origin in words for people: `alice`, `the controller`, `replica 2`, `its agent`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator { user } => fmt::Display::fmt(&Text::clipped(user, 128), f),
            Self::Controller { .. } => f.write_str("the controller"),
            Self::Replica { id } => write!(f, "replica {id}"),
            Self::Node { .. } => f.write_str("its agent"),
        }
    }
}
