//! Runtime: the port behind which pods run, on a real machine or a simulated one.

use std::time::Duration;

use bytes::Bytes;

use super::{LocalPodStatus, PodUid, PodUpdateSender};

/// Runs the pods of one machine. The session's task calls these methods, so they must not block: slow work happens
/// elsewhere, and its outcome is sent as an update.
///
/// Each started pod is reported as `stopped` once, when nothing of it runs any more, for whatever reason.
pub trait Runtime: Send + Sync + 'static {
    /// Sets where updates go from now on. Called before anything else. Pods that already run, left by an earlier
    /// process of the agent, are reported before this returns.
    fn report_to(&self, updates: PodUpdateSender);
    /// Called at most once per uid, unless all pods were lost meanwhile ([`PodUpdateSender::lost`]).
    fn start(&self, pod: PodToStart);
    /// Asks the pod to end. The caller kills it when the grace is over. A second call can shorten the grace.
    fn stop(&self, uid: PodUid, grace: Duration);
    fn kill(&self, uid: PodUid);
    /// Stops a pod of which the agent has no record: its files may be lost while its processes run. True: the runtime
    /// searches for them, and reports the pod as stopped when nothing of it runs. False: nothing of it runs.
    fn stop_unrecorded(&self, _pod: &PodName, _uid: PodUid, _grace: Duration) -> bool {
        false
    }
    /// The name of a pod that was not ordered from this process of the agent; none if it is unknown.
    fn name_of(&self, uid: PodUid) -> Option<PodName>;
    /// The notes of earlier processes of the agent. Called once, after [`Runtime::report_to`].
    fn recall(&self) -> RecalledNotes {
        RecalledNotes::default()
    }
    /// Keeps a note for the next process of the agent.
    fn note(&self, _note: DurableNote) {}
}

/// A note that outlives the agent's process. A replica that lags behind must not make the next process start a pod
/// again that has ended, or follow orders that were overtaken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurableNote {
    /// This pod has ended and never starts again.
    Ended { uid: PodUid, status: LocalPodStatus },
    /// The fleet that gave the orders, and the highest revision that was followed.
    Orders { fleet: String, revision: u64 },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecalledNotes {
    /// Empty if no fleet gave orders yet.
    pub fleet: String,
    pub revision: u64,
    /// The oldest first.
    pub ended: Vec<(PodUid, LocalPodStatus)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodToStart {
    pub namespace: String,
    pub name: String,
    pub uid: PodUid,
    /// The Pod as Kubernetes JSON.
    pub manifest: Bytes,
}
