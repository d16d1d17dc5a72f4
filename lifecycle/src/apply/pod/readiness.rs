//! Readiness: pods of a node that fell silent are not ready, and a node that was away is ready only without old pods.

use std::sync::Arc;

use crate::apply::Application;
use crate::object::event::PodHappening;
use crate::object::node::{ConditionStatus, Node, READY};
use crate::object::pod::{Ending, Pod};
use crate::object::record::Stored;
use crate::rejection::{Rejection, UnstoppedPod};
use crate::value::meta::Uid;

/// How many pods a refusal names.
const SHOWN_MAX: usize = 3;

impl Application<'_> {
    /// I-12: a pod that was deleted while the node was there may never have been stopped either.
    pub(crate) fn mark_endings_unseen(&mut self, node: &Node) {
        for pod in self.tenants_of(node) {
            if let Some(ending) = pod.ending.filter(|ending| !ending.in_absence) {
                let ending = Some(Ending { in_absence: true, ..ending });
                self.put_pod(Pod { ending, ..pod.as_ref().clone() });
            }
        }
    }

    /// PD-2, in the entry that marks the node, so that no pod is forgotten (PD-3).
    pub(crate) fn mark_tenants_unready(&mut self, node: &Node) {
        for pod in self.tenants_of(node) {
            let ready = pod.status.condition(READY).filter(|ready| ready.status != ConditionStatus::False);
            let Some(ready) = ready.cloned() else { continue };
            let mut after = pod.as_ref().clone();
            after.status.set_condition(READY, ConditionStatus::False, (&ready.reason, &ready.message), self.now);
            let after = self.put_pod(after);
            self.note_pod(&after, PodHappening::NodeFellSilent);
        }
    }

    /// I-12: a node that was away is ready again when the pods that were deleted meanwhile have stopped.
    pub(crate) fn require_stopped(
        &self,
        before: Option<&Node>,
        after: &Node,
        running: Option<&[Uid]>,
    ) -> Result<(), Rejection> {
        if !after.is_ready() || before.is_some_and(Node::is_ready) {
            return Ok(());
        }
        let name = &after.meta.name;
        let pods = self.pods_on(name);
        let incarnation = before.map(|node| node.incarnation);
        let is_own = |pod: &&Arc<Pod>| incarnation.is_some_and(|own| pod.is_bound_to(name, own));
        let unconfirmed = |pod: &&Arc<Pod>| pod.ending.is_some_and(|ending| ending.in_absence) && is_own(pod);
        let strange = |uid: &&Uid| !pods.iter().filter(is_own).any(|pod| pod.meta.uid == **uid);
        let mut blocking: Vec<UnstoppedPod> = pods
            .iter()
            .filter(unconfirmed)
            .map(|pod| UnstoppedPod::Known(pod.key()))
            .chain(running.unwrap_or_default().iter().filter(strange).map(|uid| UnstoppedPod::Unknown(*uid)))
            .collect();
        if blocking.is_empty() {
            return Ok(());
        }
        let count = blocking.len() as u64;
        blocking.truncate(SHOWN_MAX);
        Err(Rejection::StillRunning { name: name.clone(), count, shown: blocking.into_boxed_slice() })
    }
}
