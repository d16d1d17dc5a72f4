//! Kinds of objects: the ones that watchers see, and the three kinds of workloads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::text::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    Node,
    Event,
    Pod,
    Workload(WorkloadKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// So many pods, with any names.
    ReplicaSet,
    /// So many pods with names of their own. At most one pod of each name exists.
    StatefulSet,
    /// One pod on every node that takes it.
    DaemonSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not one of ReplicaSet, StatefulSet, DaemonSet")]
pub struct WorkloadKindError {
    pub text: Text,
}

// === impl Kind ===

impl Kind {
    /// Kubernetes' spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Event => "Event",
            Self::Pod => "Pod",
            Self::Workload(kind) => kind.as_str(),
        }
    }
}

/// The spelling within a sentence: `node`, `replicaset`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_str().to_lowercase())
    }
}

// === impl WorkloadKind ===

impl WorkloadKind {
    pub const ALL: [Self; 3] = [Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for WorkloadKind {
    type Err = WorkloadKindError;

    fn from_str(text: &str) -> Result<Self, WorkloadKindError> {
        let named = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        named.ok_or_else(|| WorkloadKindError { text: Text::clipped(text, 64) })
    }
}
