//! Garbage: pods that are removed without confirmation by their node, and why (GC-1 to GC-5, OOS-1).

use crate::object::node::Node;
pub use crate::object::pod::Garbage;
use crate::object::pod::{EVICTED, Phase, Pod};
use crate::object::taint::OUT_OF_SERVICE_TAINT;
use crate::rule::agent_bound::ACCOUNT_MAX;
use crate::value::time::Period;
use crate::value::time::{ClusterTime, Stamp};

/// GC-1: how many pods that have ended are kept. Upstream's default.
pub const TERMINATED_KEPT: usize = 12_500;

/// GC-3: how long the agent of a deleted node may take to say that its pods have stopped. After that they count as
/// stopped, unless the leader was blind meanwhile. Longer than an agent needs, even if its replica freezes.
pub const ORPHAN_QUARANTINE: Period = Period::from_secs(120);

const _: () = assert!(ORPHAN_QUARANTINE.0 > ACCOUNT_MAX.0, "an agent may still run what GC-3 frees");

/// GC-2 to GC-4 for a pod; `node` is the Node of its node's name, in whichever life. GC-1 depends on all other pods.
pub fn garbage(pod: &Pod, node: Option<&Node>, now: ClusterTime) -> Option<Garbage> {
    garbage_from(pod, node).filter(|(_, from)| now >= *from).map(|(garbage, _)| garbage)
}

/// From when on the pod is garbage, if node and pod stay as they are.
///
/// A pod of a former life of the node is no garbage while there is a Node of the name: its agent is there and says
/// what it runs, and what it says is believed (`release_stopped`).
pub(crate) fn garbage_from(pod: &Pod, node: Option<&Node>) -> Option<(Garbage, ClusterTime)> {
    let deleted = pod.meta.deleted.filter(|_| pod.is_terminating())?;
    match (&pod.spec.binding, node) {
        (None, _) => Some((Garbage::Unscheduled, deleted.cluster)),
        (Some(_), None) => Some((Garbage::Orphaned, orphaned_until(pod, deleted))),
        (Some(_), Some(node)) => is_out_of_service(node).then_some((Garbage::OutOfService, deleted.cluster)),
    }
}

/// GC-3: until when the agent of a deleted node may still say that the pod has stopped.
pub fn orphaned_until(pod: &Pod, deleted: Stamp) -> ClusterTime {
    let since = pod.ending.and_then(|ending| ending.orphaned).unwrap_or(deleted);
    ORPHAN_QUARANTINE.after(since.cluster)
}

/// GC-2: a node that says it is ready is believed.
pub fn is_out_of_service(node: &Node) -> bool {
    !node.is_ready() && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}

/// GC-1: evicted pods go first, then the oldest, then by name.
pub(crate) fn rank(pod: &Pod) -> Option<(bool, ClusterTime)> {
    let was_evicted = pod.status.phase == Phase::Failed && pod.status.reason == EVICTED;
    (pod.status.phase.is_final() && !pod.is_terminating()).then_some((!was_evicted, pod.meta.created.cluster))
}
