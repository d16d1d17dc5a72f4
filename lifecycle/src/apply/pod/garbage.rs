//! Pod garbage: pods whose stop no agent will confirm, and pods of nodes that are gone.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::object::event::PodHappening;
use crate::object::node::{ConditionStatus, Incarnation, Node};
use crate::object::pod::{DISRUPTION_TARGET, Ending, Phase, Pod, PodKey};
use crate::object::record::Stored;
use crate::rejection::Rejection;
use crate::rule::garbage::{self, Garbage, TERMINATED_KEPT};
use crate::value::meta::{Revision, Uid};
use crate::value::text::Text;

const BY_POD_GC: &str = "DeletionByPodGC";

impl Application<'_> {
    pub(crate) fn collect_pod(&mut self, key: &PodKey, uid: Uid) -> ApplyResult {
        let pod = self.expect_pod_of(key, uid)?;
        let why = self.garbage(&pod).ok_or_else(|| Rejection::NotGarbage { name: Text::from(key.to_string()) })?;
        let revision = self.collect(&pod, why);
        Ok(Receipt { revision, effect: ReceiptEffect::Deleted })
    }

    fn garbage(&self, pod: &Arc<Pod>) -> Option<Garbage> {
        let node = pod.node().and_then(|name| self.state.nodes.get(name));
        garbage::garbage(pod, node.map(Arc::as_ref), self.now.cluster).or_else(|| self.surplus(pod))
    }

    /// GC-1: whether the pod is among the surplus of those that have ended.
    fn surplus(&self, pod: &Pod) -> Option<Garbage> {
        let finished = self.state.finished_pods();
        let excess = finished.len().saturating_sub(TERMINATED_KEPT);
        let key = pod.key();
        self.state.finished_pods().take(excess).any(|other| *other == key).then_some(Garbage::Terminated)
    }

    /// GC-5: watchers see the pod fail before it goes, unless it had ended by itself.
    fn collect(&mut self, pod: &Arc<Pod>, why: Garbage) -> Revision {
        let mut last = pod.clone();
        if !pod.status.phase.is_final() {
            let mut failed = pod.as_ref().clone();
            failed.status.phase = Phase::Failed;
            // The message is seen by watchers and never stored: the pod is gone within this entry.
            failed.status.set_condition(DISRUPTION_TARGET, ConditionStatus::True, (BY_POD_GC, why.why()), self.now);
            last = self.put_pod(failed);
        }
        let revision = self.remove_pod(&last);
        self.note_pod(&last, PodHappening::Collected { why });
        revision
    }

    /// The names of a lost node's pods become free with it, those of its former lives too. An agent that lives gets
    /// time to confirm their stop.
    pub(crate) fn release_tenants(&mut self, node: &Node) {
        let ready = node.status.ready().map(|ready| ready.status);
        let lives = matches!(ready, Some(ConditionStatus::True | ConditionStatus::False));
        for pod in self.pods_on(&node.meta.name) {
            match lives && !garbage::is_out_of_service(node) && !pod.status.phase.is_final() {
                true => self.orphan(&pod),
                false => drop(self.collect(&pod, Garbage::Orphaned)),
            }
        }
    }

    fn orphan(&mut self, pod: &Pod) {
        let grace = pod.ending.map_or(pod.spec.grace, |ending| ending.grace);
        let in_absence = pod.ending.is_some_and(|ending| ending.in_absence);
        let mut orphan = pod.clone();
        orphan.ending = Some(Ending { grace, in_absence, orphaned: Some(self.now) });
        orphan.meta.deleted = orphan.meta.deleted.or(Some(self.now));
        self.put_pod(orphan);
    }

    /// An agent that registers its node or reports its status says what it still runs: all other pods of former lives
    /// have stopped.
    pub(crate) fn release_stopped(&mut self, name: &str, incarnation: Option<Incarnation>, running: Option<&[Uid]>) {
        let Some(running) = running else { return };
        for pod in self.pods_on(name) {
            let is_former = pod.spec.binding.as_ref().is_some_and(|binding| Some(binding.incarnation) != incarnation);
            if is_former && pod.is_terminating() && !running.contains(&pod.meta.uid) {
                self.remove_pod(&pod);
            }
        }
    }
}
