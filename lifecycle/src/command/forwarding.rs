//! Forwarding: which commands a follower may pass on to the leader.

use crate::command::{Command, Operation, Origin, ReplicaOperation};
use crate::object::replica::ReplicaId;

impl Command {
    /// Whether replica `from` may pass this on to the leader: writes of operators and agents in their own name, and the
    /// replica's own announcement. What the leader decides is bound to its term and to itself.
    pub fn may_be_forwarded_by(&self, from: ReplicaId) -> bool {
        match &self.operation {
            Operation::Operator(_) => match self.origin {
                Origin::Operator { .. } => true,
                Origin::Controller { .. } | Origin::Replica { .. } | Origin::Node { .. } => false,
            },
            Operation::Agent(_) => match self.origin {
                Origin::Node { .. } => true,
                Origin::Operator { .. } | Origin::Controller { .. } | Origin::Replica { .. } => false,
            },
            Operation::Replica(ReplicaOperation::AnnounceReplica { replica }) => match self.origin {
                Origin::Replica { id } => id == from && replica.id == from,
                Origin::Operator { .. } | Origin::Controller { .. } | Origin::Node { .. } => false,
            },
            Operation::Replica(ReplicaOperation::RetireReplica { .. }) | Operation::Leader(_) => false,
        }
    }
}
