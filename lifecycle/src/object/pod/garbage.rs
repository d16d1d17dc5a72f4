//! Garbage: why a pod is removed without its node's word (GC-1 to GC-4).

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Why a pod is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray)]
pub enum Garbage {
    /// GC-1: the pod has ended, and more have than are kept.
    Terminated,
    /// GC-2: the pod was deleted, and an operator vouches that its machine is off.
    OutOfService,
    /// GC-3: the node is gone, and had time to say that the pod has stopped.
    Orphaned,
    /// GC-4: the pod was deleted before it ever had a node.
    Unscheduled,
}

impl Garbage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }

    /// The reason, for people.
    pub fn why(self) -> &'static str {
        match self {
            Self::Terminated => "it had ended, and more such pods are there than are kept",
            Self::OutOfService => "its node is out of service",
            Self::Orphaned => "its node is gone",
            Self::Unscheduled => "it was deleted before it had a node",
        }
    }
}
