//! Origins: who asks for a command.

use serde::{Deserialize, Serialize};

use crate::object::replica::ReplicaId;
use crate::value::author::Author;
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

impl Origin {
    /// The origin as it is stored with what it did.
    pub fn author(&self) -> Author {
        match self {
            Self::Operator { user } => Author::operator(user),
            Self::Controller { .. } => Author::Controller,
            Self::Replica { id } => Author::Replica { id: *id },
            Self::Node { .. } => Author::Agent,
        }
    }
}
