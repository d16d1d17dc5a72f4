//! Commands of replicas about replicas: which store each runs on, and which ids are used up.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::replica::{ReplicaId, ReplicaRecord, ReplicaTrouble};
use crate::value::level::Level;

/// An operation that replicas ask for. No agent may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(ReplicaOperationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`ReplicaOperation`], without their data.")]
pub enum ReplicaOperation {
    /// A replica announces the store it runs on; a different store under a known id is rejected.
    AnnounceReplica { replica: ReplicaRecord },
    /// A replica left the membership; its id is never used again.
    RetireReplica { id: ReplicaId },
    /// A replica was found to be in trouble: the leader tells operators by an event.
    ReportReplica { id: ReplicaId, trouble: ReplicaTrouble },
}

impl ReplicaOperationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl ReplicaOperation {
    /// The level at which it came. Below it the operation must not enter the log.
    pub fn level(&self) -> Level {
        match self {
            Self::AnnounceReplica { .. } | Self::RetireReplica { .. } | Self::ReportReplica { .. } => Level::FIRST,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        ReplicaOperationKind::from(self).into()
    }
}
