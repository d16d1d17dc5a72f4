//! The one type configuration of the consensus library.

use std::fmt;

use muster_lifecycle::command::Outcome;
use muster_lifecycle::replica::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::write::encoded::EncodedBatch;

/// The addresses at which a replica listens, as the replicated membership knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub peer: String,
    pub agent: String,
    pub client: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.peer)
    }
}

/// The answers to a batch, in its order. Empty for entries that carry no commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes(pub Vec<Outcome>);

openraft::declare_raft_types!(
    pub TypeConfig:
        D = EncodedBatch,
        R = Outcomes,
        NodeId = ReplicaId,
        Node = Endpoint,
        // At most one leader per term, so that a term names its leader: `apply` relies on it.
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
pub type LogEntry = openraft::alias::EntryOf<TypeConfig>;
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
