//! The pods of a node as people want to see them.

use super::{Life, Pod, Workload};
use crate::pods::{Phase, PodUid};

/// One pod of which this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInsight {
    pub uid: PodUid,
    /// `namespace/name`; empty if an earlier process of the agent left it, and nobody knows any more.
    pub name: String,
    pub phase: Phase,
    pub ready: bool,
    pub restarts: u32,
    pub reason: String,
    /// It was told to end and something of it still runs.
    pub stopping: bool,
}

impl Workload {
    pub(crate) fn insight(&self) -> Vec<PodInsight> {
        self.pods.iter().map(|(uid, pod)| pod.insight(*uid)).collect()
    }
}

impl Pod {
    fn insight(&self, uid: PodUid) -> PodInsight {
        PodInsight {
            uid,
            name: self.name.as_ref().map(|name| format!("{}/{}", name.namespace, name.name)).unwrap_or_default(),
            phase: self.status.phase,
            ready: self.status.ready,
            restarts: self.status.restarts,
            reason: self.status.reason.clone(),
            stopping: matches!(self.life, Life::Stopping { .. }),
        }
    }
}
