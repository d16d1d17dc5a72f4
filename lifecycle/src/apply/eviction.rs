//! Commands of the leader about pods, and what becomes of pods with their node: evicted, collected, placed, marked.
//!
//! Every decision of a leader is checked again on the state that the entry finds: the taint may be gone, the pod
//! another one, the node full. Then nothing happens.

use std::sync::Arc;

use crate::apply::pod::{DEFAULT_SCHEDULER, pod_subject};
use crate::apply::{Application, ApplyResult, EVENT_SOURCE, Note};
use crate::command::{Precondition, Receipt, ReceiptEffect};
use crate::judge::placement;
use crate::object::event::EventType;
use crate::object::node::{ConditionStatus, Incarnation, Node, READY};
use crate::object::pod::{DISRUPTION_TARGET, Ending, POD_SCHEDULED, Phase, Pod, PodKey};
use crate::object::record::Stored;
use crate::rejection::Rejection;
use crate::rule::condition_taint::Absence;
use crate::rule::garbage::{self, Garbage, TERMINATED_KEPT};
use crate::rule::taint_eviction;
use crate::value::meta::{Revision, Uid};
use crate::value::text::Text;

const TAINT_MANAGER: &str = "taint-eviction-controller";
const TAINT_MANAGER_EVICTION: &str = "TaintManagerEviction";
const BY_TAINT_MANAGER: (&str, &str) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
const BY_POD_GC: &str = "DeletionByPodGC";
const NODE_NOT_READY: &str = "NodeNotReady";
const POD_COLLECTED: &str = "PodCollected";
const FAILED_SCHEDULING: &str = "FailedScheduling";
const UNSCHEDULABLE: &str = "Unschedulable";

/// How many pods a refusal names.
const SHOWN_MAX: usize = 3;
const WHY_MAX: usize = 1024;

// === taints ===

impl Application<'_> {
    /// TE-8, with what upstream leaves out: the taint must still be there, and the pod must be the one meant.
    pub(crate) fn evict_pod(&mut self, key: &PodKey, uid: Uid) -> ApplyResult {
        let before = self.expect_pod_of(key, uid)?;
        let not_leaving = || Rejection::NotLeaving { name: Text::from(key.to_string()) };
        let node = self.state.node_of(&before).cloned().ok_or_else(not_leaving)?;
        let (taint, _) = taint_eviction::cause(&before, &node.spec.taints)
            .filter(|(_, at)| before.is_active() && *at <= self.now.cluster)
            .ok_or_else(not_leaving)?;
        // Z-6: while all zones are fully disrupted, and for a while after, no pod leaves a node for being lost.
        if Absence::of(taint).is_some() && self.state.policy_state.suspends_evictions(self.now.cluster) {
            return Err(Rejection::Spared);
        }
        let mut status = before.status.clone();
        status.set_condition(DISRUPTION_TARGET, ConditionStatus::True, BY_TAINT_MANAGER, self.now);
        let pod = self.end_pod(&before, before.spec.grace, status);
        let message = format!("Marking for deletion Pod {key}: {taint}");
        let note =
            Note { event_type: EventType::Normal, reason: TAINT_MANAGER_EVICTION, message, source: TAINT_MANAGER };
        self.record_event(pod_subject(&pod), note);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Changed })
    }

    fn expect_pod_of(&self, key: &PodKey, uid: Uid) -> Result<Arc<Pod>, Rejection> {
        self.expect_pod(key, &Precondition { revision: None, uid: Some(uid) })
    }
}

// === garbage ===

impl Application<'_> {
    pub(crate) fn collect_pod(&mut self, key: &PodKey, uid: Uid) -> ApplyResult {
        let pod = self.expect_pod_of(key, uid)?;
        let why = self.garbage(&pod).ok_or_else(|| Rejection::NotGarbage { name: Text::from(key.to_string()) })?;
        let revision = self.collect(&pod, why);
        Ok(Receipt { revision, effect: ReceiptEffect::Deleted })
    }

    fn garbage(&self, pod: &Arc<Pod>) -> Option<Garbage> {
        let node = self.state.node_of(pod);
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
            failed.status.set_condition(DISRUPTION_TARGET, ConditionStatus::True, (BY_POD_GC, why.why()), self.now);
            last = self.put_pod(failed);
        }
        let revision = self.remove_pod(&last);
        self.note_pod(&last, POD_COLLECTED, format!("pod {} was taken away: {}", last.key(), why.why()));
        revision
    }

    /// The names of a lost node's pods become free with it. An agent that lives gets time to confirm their stop.
    pub(crate) fn release_tenants(&mut self, node: &Node) {
        let ready = node.status.ready().map(|ready| ready.status);
        let lives = matches!(ready, Some(ConditionStatus::True | ConditionStatus::False));
        for pod in self.tenants_of(node) {
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

    /// The agent that registers a node anew says what it still runs: all other pods of former lives have stopped.
    pub(crate) fn release_stopped(&mut self, name: &str, incarnation: Option<Incarnation>, running: Option<&[Uid]>) {
        let Some(running) = running else { return };
        for pod in self.pods_on(name) {
            let is_former = pod.spec.binding.as_ref().is_some_and(|binding| Some(binding.incarnation) != incarnation);
            if is_former && pod.is_terminating() && !running.contains(&pod.meta.uid) {
                self.remove_pod(&pod);
            }
        }
    }

    fn tenants_of(&self, node: &Node) -> Vec<Arc<Pod>> {
        let mut pods = self.pods_on(&node.meta.name);
        pods.retain(|pod| pod.is_bound_to(&node.meta.name, node.incarnation));
        pods
    }

    fn pods_on(&self, name: &str) -> Vec<Arc<Pod>> {
        let tenants = self.state.tenants(name).into_iter().flat_map(|tenants| tenants.keys());
        tenants.filter_map(|key| self.state.pods.get(key)).cloned().collect()
    }
}

// === readiness ===

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
            let message = "Node is not ready".to_owned();
            let note = Note { event_type: EventType::Warning, reason: NODE_NOT_READY, message, source: EVENT_SOURCE };
            self.record_event(pod_subject(&after), note);
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
        let blocking: Vec<String> = pods
            .iter()
            .filter(unconfirmed)
            .map(|pod| pod.key().to_string())
            .chain(running.unwrap_or_default().iter().filter(strange).map(|uid| format!("uid {uid}")))
            .collect();
        if blocking.is_empty() {
            return Ok(());
        }
        let shown = Text::from(blocking[..blocking.len().min(SHOWN_MAX)].join(", "));
        Err(Rejection::StillRunning { name: name.clone(), count: blocking.len() as u64, shown })
    }
}

// === placement ===

impl Application<'_> {
    pub(crate) fn bind_pod(&mut self, key: &PodKey, uid: Uid, node: &Text, incarnation: Incarnation) -> ApplyResult {
        let before = self.expect_waiting_pod(key, uid)?;
        let node = self.incarnate(node, incarnation)?;
        let load = self.state.tenants(&node.meta.name).map(|tenants| tenants.load().clone()).unwrap_or_default();
        if let Some(refusal) = placement::refusal(&before.spec, &node, &load) {
            let (name, why) = (Text::from(key.to_string()), Text::from(refusal.to_string()));
            return Err(Rejection::Unfit { name, node: node.meta.name.clone(), why });
        }
        let mut after = before.as_ref().clone();
        self.bind_to(&mut after, &node)?;
        let pod = self.put_pod(after);
        self.note_scheduled(&pod, &node.meta.name);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Changed })
    }

    pub(crate) fn note_unplaced(&mut self, key: &PodKey, uid: Uid, why: &Text) -> ApplyResult {
        let before = self.expect_waiting_pod(key, uid)?;
        let why = Text::clipped(why, WHY_MAX);
        let known = before.status.condition(POD_SCHEDULED);
        if known.is_some_and(|known| known.message == why) {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        let mut after = before.as_ref().clone();
        after.status.set_condition(POD_SCHEDULED, ConditionStatus::False, (UNSCHEDULABLE, &why), self.now);
        // Stamps when the reason was last given, so that it is not repeated for every node that comes or goes.
        after.status.stamp_condition(POD_SCHEDULED, self.now);
        let pod = self.put_pod(after);
        let message = why.to_string();
        let reason = FAILED_SCHEDULING;
        let note = Note { event_type: EventType::Warning, reason, message, source: DEFAULT_SCHEDULER };
        self.record_event(pod_subject(&pod), note);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Changed })
    }

    fn expect_waiting_pod(&self, key: &PodKey, uid: Uid) -> Result<Arc<Pod>, Rejection> {
        let pod = self.expect_pod_of(key, uid)?;
        match pod.is_waiting() {
            true => Ok(pod),
            false => Err(Rejection::NotUnplaced { name: Text::from(key.to_string()) }),
        }
    }
}
