//! What runs pods: the port that a real machine, or a simulated one, fills.

use std::time::Duration;

use bytes::Bytes;

use super::{News, PodStatus, PodUid};

/// Runs the pods of one machine. Calls come from the session's own task and must not block: whatever takes time happens
/// elsewhere, and what comes of it is told as news.
///
/// Each pod that was started is told `stopped` once, when nothing of it runs any more, for whatever reason.
pub trait Runtime: Send + Sync + 'static {
    /// Where news go from now on. Called before anything else; what runs already, left by an earlier process of the
    /// agent, is told before this returns.
    fn report_to(&self, news: News);
    /// Called at most once per uid, unless everything was lost meanwhile ([`News::lost`]).
    fn start(&self, pod: PodSpec);
    /// Asks it to end. Who does not within the grace is killed: the caller sees to that. A second call shortens it.
    fn stop(&self, uid: PodUid, grace: Duration);
    fn kill(&self, uid: PodUid);
    /// What a pod is called that nobody ordered from this process of the agent; none if that is not known.
    fn name_of(&self, uid: PodUid) -> Option<PodName>;
    /// What earlier processes of the agent noted. Called once, after [`Runtime::report_to`].
    fn recall(&self) -> Recollection {
        Recollection::default()
    }
    /// To be kept for the next process of the agent.
    fn note(&self, _note: Note) {}
}

/// What must outlive a process of the agent, so that a replica that lags behind cannot make the next one start again
/// what has ended, or follow orders that were overtaken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Nothing of it will ever be started again.
    Ended { uid: PodUid, status: PodStatus },
    /// The fleet that gave the orders, and the highest revision of those that were followed.
    Orders { fleet: String, revision: u64 },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recollection {
    /// Empty: none.
    pub fleet: String,
    pub revision: u64,
    /// The oldest first.
    pub ended: Vec<(PodUid, PodStatus)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    pub namespace: String,
    pub name: String,
    pub uid: PodUid,
    /// The Pod as Kubernetes JSON.
    pub manifest: Bytes,
}
