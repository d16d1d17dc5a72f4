//! Commands about pods: made, changed, deleted, and what their node says of them.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult, EVENT_SOURCE, Note};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::object::event::{EventType, Subject};
use crate::object::kind::Kind;
use crate::object::kind::WorkloadKind;
use crate::object::node::{ConditionStatus, Incarnation, Node, READY};
use crate::object::pod::{
    Binding, Ending, POD_SCHEDULED, PODS_MAX, PODS_PER_NODE_MAX, Phase, Pod, PodDraft, PodKey, PodReport, PodStatus,
};
use crate::object::record::Stored;
use crate::object::toleration;
use crate::object::workload::{Workload, WorkloadKey};
use crate::rejection::Rejection;
use crate::rule;
use crate::rule::node_restriction;
use crate::state::State;
use crate::store::change::Object;
use crate::value::invalid::Invalid;
use crate::value::meta::{ObjectMeta, OwnerReference, Pairs, Uid};
use crate::value::text::Text;

const DELETED: &str = "Killing";
const SCHEDULED: &str = "Scheduled";
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// How many pods one report may contain.
const REPORTS_MAX: usize = 2 * PODS_PER_NODE_MAX;

/// How much of an agent's message about a pod is kept.
const SAID_MAX: usize = 1024;

// === operators ===

impl Application<'_> {
    pub(crate) fn create_pod(&mut self, draft: &PodDraft, uid: Uid) -> ApplyResult {
        draft.check()?;
        if self.state.pods.contains(&draft.key) {
            return Err(Rejection::AlreadyExists { kind: Kind::Pod, name: Text::from(draft.key.to_string()) });
        }
        let owners = draft.owners.clone().unwrap_or_default();
        self.require_true_owner(&draft.key, &owners)?;
        let labels = (draft.labels.clone().unwrap_or_default(), draft.annotations.clone().unwrap_or_default());
        let mut pod = self.new_pod(draft.key.clone(), uid, labels, owners);
        pod.spec = draft.template.to_spec();
        pod.spec.tolerations =
            toleration::with_defaults(&pod.spec.tolerations, self.state.policy().pod_eviction_timeout);
        pod.unmodelled = draft.template.unmodelled.clone();
        self.add_pod(pod, draft.node.as_ref())
    }

    /// A pod that bears a workload's uid counts as its pod, so its owner reference must name the workload correctly.
    fn require_true_owner(&self, key: &PodKey, owners: &[OwnerReference]) -> Result<(), Invalid> {
        let controller = owners.iter().find(|owner| owner.controller);
        let Some((owner, known)) = controller.and_then(|owner| Some((owner, self.state.employer(owner.uid)?))) else {
            return Ok(());
        };
        let is_true =
            *owner.kind == *known.kind.as_str() && owner.name == known.name && key.namespace == known.namespace;
        if is_true {
            return Ok(());
        }
        let rule = format!("{} has uid {}: name it as it is called, in its own namespace", known.kind, owner.uid);
        Err(Invalid::new("metadata.ownerReferences", format!("{known}, a {rule}")))
    }

    pub(crate) fn apply_pod(&mut self, draft: &PodDraft, uid: Uid, precondition: &Precondition) -> ApplyResult {
        draft.check()?;
        if !self.state.pods.contains(&draft.key) && *precondition == Precondition::default() {
            return self.create_pod(draft, uid);
        }
        let before = self.expect_pod(&draft.key, precondition)?;
        let after = self.applied_pod(draft, &before);
        rule::pod::pod(&after)?;
        rule::pod::pod_update(&before, &after)?;
        if after == *before {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        rule::pod::pod_weight(&after)?;
        let pod = self.put_pod(after);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Changed })
    }

    /// Only what the draft names changes; labels and annotations merge.
    fn applied_pod(&self, draft: &PodDraft, before: &Pod) -> Pod {
        let mut pod = before.clone();
        let wanted = draft.template.to_spec();
        let merged = |own: &Pairs, more: &Option<Pairs>| more.as_ref().map_or(own.clone(), |more| own.merged(more));
        pod.meta.labels = merged(&pod.meta.labels, &draft.labels);
        pod.meta.annotations = merged(&pod.meta.annotations, &draft.annotations);
        pod.meta.owners = draft.owners.clone().unwrap_or(pod.meta.owners);
        if let Some(tolerations) = &draft.template.tolerations {
            let timeout = self.state.policy().pod_eviction_timeout;
            let kept = keeping_defaults(tolerations, &before.spec.tolerations);
            pod.spec.tolerations = toleration::with_defaults(&kept, timeout);
        }
        let says = &draft.template;
        pod.spec.priority = says.priority.map_or(pod.spec.priority, |_| wanted.priority);
        pod.spec.grace = says.grace.map_or(pod.spec.grace, |_| wanted.grace);
        pod.spec.node_selector = says.node_selector.clone().unwrap_or(pod.spec.node_selector);
        pod.spec.requests = wanted.requests;
        pod.spec.host_network = wanted.host_network;
        pod.unmodelled = says.unmodelled.clone();
        if let Some(node) = draft.node.as_ref().filter(|node| Some(*node) != before.node()) {
            pod.spec.binding = Some(Binding { node: node.clone(), incarnation: Incarnation::default(), at: self.now });
        }
        pod
    }

    pub(crate) fn delete_pod(
        &mut self,
        origin: &Origin,
        key: &PodKey,
        grace: Option<u32>,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect_pod(key, precondition)?;
        rule::pod::grace(grace.map(i64::from), "gracePeriodSeconds")?;
        if self.is_gone_at_once(&before, grace) {
            let revision = self.remove_pod(&before);
            self.note_pod(&before, DELETED, format!("pod {key} was deleted by {origin} and is gone"));
            return Ok(Receipt { revision, effect: ReceiptEffect::Deleted });
        }
        let grace = grace.unwrap_or(before.spec.grace);
        // The grace of a pod that is stopping can only get shorter.
        if before.ending.is_some_and(|ending| ending.grace <= grace) {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        let pod = self.end_pod(&before, grace, before.status.clone());
        self.note_pod(&pod, DELETED, format!("pod {key} was deleted by {origin} and has {grace}s to stop"));
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Deleted })
    }

    /// GC-4, and pods whose stop need not be confirmed: the pod never ran, has ended, or its deleter does not wait.
    fn is_gone_at_once(&self, pod: &Pod, grace: Option<u32>) -> bool {
        pod.spec.binding.is_none() || pod.status.phase.is_final() || grace == Some(0)
    }
}

/// An operator's manifest does not mention the tolerations that were added when the pod was made.
fn keeping_defaults(
    wanted: &[toleration::Toleration],
    known: &[toleration::Toleration],
) -> Box<[toleration::Toleration]> {
    let is_given = |toleration: &toleration::Toleration| {
        wanted.iter().any(|own| {
            (&own.key, own.effect, own.operator) == (&toleration.key, toleration.effect, toleration.operator)
        })
    };
    let defaults = toleration::with_defaults(&[], crate::value::time::Period(0));
    let is_default = |toleration: &toleration::Toleration| {
        defaults.iter().any(|own| (&own.key, own.effect) == (&toleration.key, toleration.effect))
    };
    let kept = known.iter().filter(|toleration| is_default(toleration) && !is_given(toleration));
    wanted.iter().chain(kept).cloned().collect()
}

// === agents ===

impl Application<'_> {
    pub(crate) fn report_pods(&mut self, node: &Text, incarnation: Incarnation, reports: &[PodReport]) -> ApplyResult {
        if reports.len() > REPORTS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("pods in one report"), limit: REPORTS_MAX as u64 });
        }
        self.state.admits_carried(node)?;
        let node = self.incarnate(node, incarnation)?;
        node_restriction::pods(&node, reports, |key| self.state.pods.get(key).map(Arc::as_ref))?;
        let changed = reports.iter().filter(|report| self.report_pod(&node, report)).count();
        Ok(self.receipt(if changed > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }

    /// Whether the report changed anything. Reports about pods that are not, or no longer, the node's own do not.
    fn report_pod(&mut self, node: &Node, report: &PodReport) -> bool {
        let own = |pod: &&Arc<Pod>| pod.meta.uid == report.uid && pod.is_bound_to(&node.meta.name, node.incarnation);
        let Some(before) = self.state.pods.get(&report.key).filter(own).cloned() else { return false };
        if report.stopped && before.is_terminating() {
            self.remove_pod(&before);
            return true;
        }
        let mut after = before.as_ref().clone();
        after.status = self.reported_pod(&before.status, report);
        if after == *before {
            return false;
        }
        self.put_pod(after);
        true
    }

    fn reported_pod(&self, before: &PodStatus, report: &PodReport) -> PodStatus {
        let mut status = before.clone();
        // A pod that has ended does not begin again, and a pod has not ended while some of it still runs.
        let is_believed = !before.phase.is_final() && (report.stopped || !report.phase.is_final());
        status.phase = if is_believed { report.phase } else { before.phase };
        status.restarts = report.restarts.max(before.restarts);
        status.reason = Text::clipped(&report.reason, SAID_MAX);
        status.message = Text::clipped(&report.message, SAID_MAX);
        if status.phase != Phase::Pending {
            status.started = before.started.or(Some(self.now));
        }
        let is_ready = report.ready && status.phase == Phase::Running;
        let word = if is_ready { ConditionStatus::True } else { ConditionStatus::False };
        if before.condition(READY).map(|ready| ready.status) != Some(word) {
            status.set_condition(READY, word, ("", ""), self.now);
        }
        status
    }
}

// === what they have in common ===

impl Application<'_> {
    pub(crate) fn expect_pod(&self, key: &PodKey, precondition: &Precondition) -> Result<Arc<Pod>, Rejection> {
        let name = || Text::clipped(&key.to_string(), 320);
        let Some(pod) = self.state.pods.get(key) else {
            return Err(Rejection::NotFound { kind: Kind::Pod, name: name() });
        };
        self.check_precondition(Kind::Pod, name(), &pod.meta, precondition)?;
        Ok(pod.clone())
    }

    /// A pod in the making, without spec.
    pub(crate) fn new_pod(
        &self,
        key: PodKey,
        uid: Uid,
        (labels, annotations): (Pairs, Pairs),
        owners: Box<[OwnerReference]>,
    ) -> Pod {
        Pod {
            meta: ObjectMeta {
                name: key.name,
                namespace: Some(key.namespace),
                uid,
                revision: self.next_revision(),
                generation: 1,
                created: self.now,
                deleted: None,
                labels,
                annotations,
                owners,
                finalizers: Box::default(),
            },
            spec: Default::default(),
            status: PodStatus::default(),
            ending: None,
            unmodelled: None,
        }
    }

    /// Stores a new pod, bound to a node if it names one.
    pub(crate) fn add_pod(&mut self, mut pod: Pod, node: Option<&Text>) -> ApplyResult {
        if self.state.pods.len() >= PODS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("pods"), limit: PODS_MAX as u64 });
        }
        if let Some(name) = node {
            let unknown = || Invalid::new("spec.nodeName", format!("node {:?} not found", Text::clipped(name, 253)));
            let node = self.state.nodes.get(name).cloned().ok_or_else(unknown)?;
            self.bind_to(&mut pod, &node)?;
        }
        rule::pod::pod(&pod)?;
        rule::pod::pod_weight(&pod)?;
        let pod = self.put_pod(pod);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Created })
    }

    /// PD-4: on a node that is not ready the pod is not ready either, until the node says so.
    pub(crate) fn bind_to(&self, pod: &mut Pod, node: &Node) -> Result<(), Rejection> {
        if self.state.tenants(&node.meta.name).is_some_and(|tenants| tenants.len() >= PODS_PER_NODE_MAX) {
            let what = Text::from(format!("pods on node {:?}", node.meta.name));
            return Err(Rejection::LimitReached { what, limit: PODS_PER_NODE_MAX as u64 });
        }
        let (node_name, incarnation) = (node.meta.name.clone(), node.incarnation);
        pod.spec.binding = Some(Binding { node: node_name, incarnation, at: self.now });
        pod.status.set_condition(POD_SCHEDULED, ConditionStatus::True, ("", ""), self.now);
        if !node.is_ready() {
            pod.status.set_condition(READY, ConditionStatus::False, ("", ""), self.now);
        }
        Ok(())
    }

    pub(crate) fn note_scheduled(&mut self, pod: &Pod, node: &str) {
        let key = pod.key();
        let message = format!("Successfully assigned {key} to {node}");
        let note = Note { event_type: EventType::Normal, reason: SCHEDULED, message, source: DEFAULT_SCHEDULER };
        self.record_event(pod_subject(pod), note);
    }

    /// Marks a pod as deleted. It goes when its node confirms that it has stopped.
    pub(crate) fn end_pod(&mut self, before: &Pod, grace: u32, status: PodStatus) -> Arc<Pod> {
        let is_present = self.state.node_of(before).is_some_and(|node| node.is_ready());
        let in_absence = before.ending.map_or(!is_present, |ending| ending.in_absence);
        let ending = Ending { grace, in_absence, orphaned: before.ending.and_then(|ending| ending.orphaned) };
        let mut pod = Pod { status, ending: Some(ending), ..before.clone() };
        pod.meta.deleted = pod.meta.deleted.or(Some(self.now));
        self.put_pod(pod)
    }

    /// Stores a pod under the next revision.
    pub(crate) fn put_pod(&mut self, mut pod: Pod) -> Arc<Pod> {
        pod.meta.revision = self.next_revision();
        pod.share_texts(&mut self.state.derived.interner);
        let pod = Arc::new(pod);
        let before = self.state.pods.insert(pod.clone());
        before.iter().for_each(|before| self.state.derived.pods.leave(before));
        let node = pod.node().and_then(|name| self.state.nodes.get(name)).cloned();
        self.state.derived.pods.enter(&pod, node.as_deref());
        self.touch::<Pod>(&pod.key());
        self.review_owner(&pod);
        self.publish(before.map(Object::Pod), Some(Object::Pod(pod.clone())));
        pod
    }

    pub(crate) fn remove_pod(&mut self, pod: &Arc<Pod>) -> crate::value::meta::Revision {
        self.state.pods.remove(&pod.key());
        self.state.derived.pods.leave(pod);
        self.touch::<Pod>(&pod.key());
        self.review_owner(pod);
        self.publish(Some(Object::Pod(pod.clone())), None)
    }

    /// By uid alone, as pods are counted: the rest of an owner reference that an operator wrote need not be true.
    fn review_owner(&mut self, pod: &Pod) {
        let Some(owner) = pod.controller().map(|owner| owner.uid) else { return };
        let State { derived, workloads, .. } = &mut *self.state;
        let of_uid = |(uid, _): &&(Uid, WorkloadKey)| *uid == owner;
        let first = WorkloadKey { kind: WorkloadKind::ALL[0], namespace: Text::default(), name: Text::default() };
        let employers = derived.employers.range((owner, first)..).take_while(of_uid);
        let employers: Vec<Arc<Workload>> = employers.filter_map(|(_, key)| workloads.get(key).cloned()).collect();
        employers.iter().for_each(|workload| derived.note_workload(workload));
    }

    pub(crate) fn note_pod(&mut self, pod: &Pod, reason: &str, message: String) {
        let note = Note { event_type: EventType::Normal, reason, message, source: EVENT_SOURCE };
        self.record_event(pod_subject(pod), note);
    }
}

pub(crate) fn pod_subject(pod: &Pod) -> Subject {
    let (name, namespace) = (pod.meta.name.clone(), pod.meta.namespace.clone());
    Subject { kind: Text::from(Kind::Pod.as_str()), name, namespace, uid: pod.meta.uid }
}
