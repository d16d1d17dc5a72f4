//! When a pod has to leave its node because of the node's NoExecute taints (TE-1 to TE-7).
//!
//! The countdown begins when the taint was added or when the pod came, whichever is later, in replicated time. So it is
//! the same for every leader, moves when tolerations or taints change, and ends when they go.

use crate::pod::Pod;
use crate::taint::{Effect, Taint};
use crate::time::ClusterTime;
use crate::toleration::{self, Patience};

/// What becomes of a pod on a node with taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It has to go at this moment, or had to. The earliest of its taints counts.
    LeavesAt(ClusterTime),
    Stays,
}

pub fn fate(pod: &Pod, taints: &[Taint]) -> Fate {
    let leaving = cause(pod, taints).filter(|_| pod.is_active());
    leaving.map_or(Fate::Stays, |(_, at)| Fate::LeavesAt(at))
}

/// The taint that drives it away, or drove it away if it is leaving already, and when.
pub fn cause<'a>(pod: &Pod, taints: &'a [Taint]) -> Option<(&'a Taint, ClusterTime)> {
    let binding = pod.spec.binding.as_ref()?;
    let leaving = no_execute(taints).filter_map(|taint| match fate_by(pod, taint, binding.at.cluster) {
        Fate::LeavesAt(at) => Some((taint, at)),
        Fate::Stays => None,
    });
    leaving.min_by_key(|(_, at)| *at)
}

pub fn no_execute(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| taint.effect == Effect::NoExecute)
}

fn fate_by(pod: &Pod, taint: &Taint, bound: ClusterTime) -> Fate {
    let origin = taint.added.map_or(bound, |added| added.cluster.max(bound));
    match toleration::patience(&pod.spec.tolerations, taint) {
        Patience::Endless => Fate::Stays,
        Patience::None => Fate::LeavesAt(origin),
        Patience::For(period) => Fate::LeavesAt(period.after(origin)),
    }
}
