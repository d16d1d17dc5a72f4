//! Commands of operators about pods.

mod binding;
mod eviction;
mod garbage;
mod readiness;
mod report;
mod stored;

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::object::event::PodHappening;
use crate::object::kind::Kind;
use crate::object::node::Incarnation;
use crate::object::pod::{Binding, Pod, PodDraft, PodKey};
use crate::object::toleration;
use crate::rejection::Rejection;
use crate::rule;
use crate::value::invalid::Invalid;
use crate::value::meta::{OwnerReference, Pairs, Uid};
use crate::value::text::Text;
use crate::value::violation::PodViolation;

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
        let (workload, kind) = (Text::from(known.to_string()), Text::from(known.kind.as_str()));
        Err(Invalid::new("metadata.ownerReferences", PodViolation::FalseOwner { workload, kind, uid: owner.uid }))
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
            self.note_pod(&before, PodHappening::Deleted { by: origin.author(), grace: None });
            return Ok(Receipt { revision, effect: ReceiptEffect::Deleted });
        }
        let grace = grace.unwrap_or(before.spec.grace);
        // The grace of a pod that is stopping can only get shorter.
        if before.ending.is_some_and(|ending| ending.grace <= grace) {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        let pod = self.end_pod(&before, grace, before.status.clone());
        self.note_pod(&pod, PodHappening::Deleted { by: origin.author(), grace: Some(grace) });
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
