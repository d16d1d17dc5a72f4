//! Commands: what may be asked of the replicated state, and what it answers.
//!
//! A log entry is a [`Batch`]: one stamp and the commands proposed together. Each command gets its own
//! [`Outcome`]; a [`Rejection`](crate::rejection::Rejection) is data, not an error of the machinery.
//!
//! Operations are grouped by who may ask for them, one file each.

mod agent;
pub mod client;
mod forwarding;
mod leader;
mod operator;
mod origin;
mod outcome;
mod precondition;
mod replica;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::agent::{AgentOperation, AgentOperationKind, Running};
pub use self::leader::{LIFTS_MAX, LeaderOperation, LeaderOperationKind, Sighting};
pub use self::operator::{OperatorOperation, OperatorOperationKind};
pub use self::origin::Origin;
pub use self::outcome::{Outcome, Receipt, ReceiptEffect};
pub use self::precondition::Precondition;
pub use self::replica::{ReplicaOperation, ReplicaOperationKind};
use crate::value::time::Stamp;

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub stamp: Stamp,
    pub commands: Vec<Command>,
}

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub origin: Origin,
    pub request: Option<RequestId>,
    pub operation: Operation,
}

/// Makes a retried write apply once. One client id belongs to one writer that numbers its requests
/// upwards and has at most one outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    pub client: u128,
    pub sequence: u64,
}

/// What a command asks for, by who may ask for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// For operators. The leader and the replicas may ask for it too; agents may not.
    Operator(OperatorOperation),
    /// For the leader alone, on its own account.
    Leader(LeaderOperation),
    /// For the agent of the node that the operation is about.
    Agent(AgentOperation),
    /// For replicas. Operators and the leader may ask for it too; agents may not.
    Replica(ReplicaOperation),
}

// === impl Operation ===

impl Operation {
    /// The Node that the operation is about, if it is about one.
    pub fn node_name(&self) -> Option<&str> {
        match self {
            Self::Operator(operation) => operation.node_name(),
            Self::Leader(operation) => operation.node_name(),
            Self::Agent(operation) => Some(operation.node_name()),
            Self::Replica(_) => None,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Operator(operation) => operation.label(),
            Self::Leader(operation) => operation.label(),
            Self::Agent(operation) => operation.label(),
            Self::Replica(operation) => operation.label(),
        }
    }
}

impl From<OperatorOperation> for Operation {
    fn from(operation: OperatorOperation) -> Self {
        Self::Operator(operation)
    }
}

impl From<LeaderOperation> for Operation {
    fn from(operation: LeaderOperation) -> Self {
        Self::Leader(operation)
    }
}

impl From<AgentOperation> for Operation {
    fn from(operation: AgentOperation) -> Self {
        Self::Agent(operation)
    }
}

impl From<ReplicaOperation> for Operation {
    fn from(operation: ReplicaOperation) -> Self {
        Self::Replica(operation)
    }
}

// === impl Batch ===

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commands.len() {
            1 => f.write_str("1 command"),
            count => write!(f, "{count} commands"),
        }
    }
}
