//! Taint eviction: when a pod has to leave its node because of the node's NoExecute taints (TE-1 to TE-7).
//!
//! The countdown begins when the taint was added or when the pod came, whichever is later, in replicated time. So it
//! is the same for every leader, moves when tolerations or taints change, and ends when they go.

use crate::object::pod::Pod;
use crate::object::taint::{Effect, Taint};
use crate::object::toleration::{self, Patience};
use crate::value::time::ClusterTime;

/// When an active pod has to go, or had to. The earliest of its taints counts.
pub fn leaves_at(pod: &Pod, taints: &[Taint]) -> Option<ClusterTime> {
    cause(pod, taints).filter(|_| pod.is_active()).map(|(_, at)| at)
}

/// The taint that drives the pod away, or drove it away if it is leaving already, and when.
pub fn cause<'a>(pod: &Pod, taints: &'a [Taint]) -> Option<(&'a Taint, ClusterTime)> {
    let binding = pod.spec.binding.as_ref()?;
    let leaving = no_execute(taints).filter_map(|taint| Some((taint, leaves_by(pod, taint, binding.at.cluster)?)));
    leaving.min_by_key(|(_, at)| *at)
}

pub fn no_execute(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| taint.effect == Effect::NoExecute)
}

fn leaves_by(pod: &Pod, taint: &Taint, bound: ClusterTime) -> Option<ClusterTime> {
    let origin = taint.added.map_or(bound, |added| added.cluster.max(bound));
    match toleration::patience(&pod.spec.tolerations, taint) {
        Patience::Endless => None,
        Patience::None => Some(origin),
        Patience::For(period) => Some(period.after(origin)),
    }
}
