//! Snapshot of a node's pods, for operators.

use super::{NodePods, Pod, PodStage};
use crate::pods::{PodPhase, PodUid};

/// One pod that this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSnapshot {
    pub uid: PodUid,
    /// `namespace/name`; empty if an earlier process of the agent left it and its name is unknown.
    pub name: String,
    pub phase: PodPhase,
    pub ready: bool,
    pub restarts: u32,
    pub reason: String,
    /// It was told to stop, and something of it still runs.
    pub stopping: bool,
}

impl NodePods {
    pub(crate) fn snapshot(&self) -> Vec<PodSnapshot> {
        self.pods.iter().map(|(uid, pod)| pod.snapshot(*uid)).collect()
    }
}

impl Pod {
    fn snapshot(&self, uid: PodUid) -> PodSnapshot {
        PodSnapshot {
            uid,
            name: self.name.as_ref().map(|name| format!("{}/{}", name.namespace, name.name)).unwrap_or_default(),
            phase: self.status.phase,
            ready: self.status.ready,
            restarts: self.status.restarts,
            reason: self.status.reason.clone(),
            stopping: matches!(self.life, PodStage::Stopping { .. }),
        }
    }
}
