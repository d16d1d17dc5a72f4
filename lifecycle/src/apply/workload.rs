//! Commands about workloads.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult, Note};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::judge::staffing::{self, Opening, STEP_MAX};
use crate::object::event::{EventType, Subject};
use crate::object::kind::Kind;
use crate::object::kind::WorkloadKind;
use crate::object::pod::{Pod, PodKey};
use crate::object::record::Stored;
use crate::object::toleration;
use crate::object::workload::{WORKLOADS_MAX, Workload, WorkloadDraft, WorkloadKey, WorkloadSpec};
use crate::rejection::Rejection;
use crate::rule;
use crate::store::change::Object;
use crate::value::meta::{ObjectMeta, Pairs, Revision, Uid};
use crate::value::text::Text;

const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";

/// How many names that are taken already are passed over.
const NAMES_TRIED: u64 = 16;

// === operators ===

impl Application<'_> {
    pub(crate) fn create_workload(&mut self, draft: &WorkloadDraft, uid: Uid) -> ApplyResult {
        draft.check()?;
        let key = &draft.key;
        if self.state.workloads.contains(key) {
            let kind = Kind::Workload(key.kind);
            return Err(Rejection::AlreadyExists { kind, name: Text::from(key.to_string()) });
        }
        if self.state.workloads.len() >= WORKLOADS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("workloads"), limit: WORKLOADS_MAX as u64 });
        }
        let workload = self.new_workload(draft, uid)?;
        rule::pod::workload(&workload)?;
        rule::pod::workload_weight(&workload)?;
        let workload = self.put_workload(workload);
        Ok(Receipt { revision: workload.meta.revision, effect: ReceiptEffect::Created })
    }

    pub(crate) fn apply_workload(
        &mut self,
        draft: &WorkloadDraft,
        uid: Uid,
        precondition: &Precondition,
    ) -> ApplyResult {
        draft.check()?;
        if !self.state.workloads.contains(&draft.key) && *precondition == Precondition::default() {
            return self.create_workload(draft, uid);
        }
        let before = self.expect_workload(&draft.key, precondition)?;
        let mut after = self.applied_workload(draft, &before)?;
        rule::pod::workload(&after)?;
        rule::pod::workload_update(&before, &after)?;
        if after == *before {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        if after.spec != before.spec {
            after.meta.generation += 1;
        }
        rule::pod::workload_weight(&after)?;
        let workload = self.put_workload(after);
        Ok(Receipt { revision: workload.meta.revision, effect: ReceiptEffect::Changed })
    }

    /// The workload goes when all of its pods are on their way out.
    pub(crate) fn delete_workload(&mut self, key: &WorkloadKey, precondition: &Precondition) -> ApplyResult {
        let before = self.expect_workload(key, precondition)?;
        if before.meta.deleted.is_some() {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        let mut after = before.as_ref().clone();
        after.meta.deleted = Some(self.now);
        let workload = self.put_workload(after);
        Ok(Receipt { revision: workload.meta.revision, effect: ReceiptEffect::Deleted })
    }

    fn new_workload(&self, draft: &WorkloadDraft, uid: Uid) -> Result<Workload, Rejection> {
        Ok(Workload {
            kind: draft.key.kind,
            meta: ObjectMeta {
                name: draft.key.name.clone(),
                namespace: Some(draft.key.namespace.clone()),
                uid,
                revision: self.next_revision(),
                generation: 1,
                created: self.now,
                deleted: None,
                labels: draft.labels.clone().unwrap_or_default(),
                annotations: draft.annotations.clone().unwrap_or_default(),
                owners: draft.owners.clone().unwrap_or_default(),
                finalizers: Box::default(),
            },
            spec: spec(draft)?,
            made: 0,
            unmodelled: draft.unmodelled.clone(),
        })
    }

    fn applied_workload(&self, draft: &WorkloadDraft, before: &Workload) -> Result<Workload, Rejection> {
        let mut workload = before.clone();
        let merged = |own: &Pairs, more: &Option<Pairs>| more.as_ref().map_or(own.clone(), |more| own.merged(more));
        workload.meta.labels = merged(&before.meta.labels, &draft.labels);
        workload.meta.annotations = merged(&before.meta.annotations, &draft.annotations);
        workload.spec = spec(draft)?;
        if draft.replicas.is_none() {
            workload.spec.replicas = before.spec.replicas;
        }
        workload.unmodelled = draft.unmodelled.clone();
        workload.meta.owners = draft.owners.clone().unwrap_or(workload.meta.owners);
        Ok(workload)
    }
}

fn spec(draft: &WorkloadDraft) -> Result<WorkloadSpec, Rejection> {
    Ok(WorkloadSpec {
        replicas: if draft.key.kind == WorkloadKind::DaemonSet { 0 } else { draft.replicas()? },
        selector: draft.selector.clone(),
        labels: draft.pod_labels.clone(),
        annotations: draft.pod_annotations.clone(),
        template: draft.template.clone(),
    })
}

// === the leader ===

impl Application<'_> {
    /// The missing and the surplus pods are worked out on the present state, whatever the leader saw.
    pub(crate) fn staff_workload(
        &mut self,
        origin: &Origin,
        key: &WorkloadKey,
        uid: Uid,
        nodes: &[Text],
    ) -> ApplyResult {
        if nodes.len() > STEP_MAX {
            return Err(Rejection::LimitReached { what: Text::from("nodes in one entry"), limit: STEP_MAX as u64 });
        }
        let workload = self.expect_workload(key, &Precondition { revision: None, uid: Some(uid) })?;
        let staffing = staffing::staffing(self.state, &workload, nodes);
        if staffing.is_settled() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        let dismissed = staffing.dismissals.iter().filter(|pod| self.dismiss(origin, &workload, pod)).count();
        if staffing.is_over {
            let revision = self.remove_workload(&workload);
            return Ok(Receipt { revision, effect: ReceiptEffect::Deleted });
        }
        match self.fill(&workload, &staffing.openings) {
            // Pods that were made or dismissed count, even if the rest met a limit.
            (0, Some(limit)) if dismissed == 0 => Err(limit),
            (_, _) => Ok(self.receipt(ReceiptEffect::Changed)),
        }
    }

    fn dismiss(&mut self, origin: &Origin, workload: &Workload, pod: &PodKey) -> bool {
        let dismissed = self.delete_pod(origin, pod, None, &Precondition::default()).is_ok();
        if dismissed {
            self.note_workload(workload, SUCCESSFUL_DELETE, format!("Deleted pod: {}", pod.name));
        }
        dismissed
    }

    /// How many pods were made, and the rejection that kept the rest from being made.
    fn fill(&mut self, workload: &Workload, openings: &[Opening]) -> (usize, Option<Rejection>) {
        let mut workload = workload.clone();
        let mut made = 0;
        let mut limit = None;
        for opening in openings {
            match self.make_pod(&mut workload, opening) {
                Ok(()) => made += 1,
                Err(rejection) => limit = Some(rejection),
            }
        }
        if made > 0 {
            self.put_workload(workload);
        }
        (made, limit)
    }

    fn make_pod(&mut self, workload: &mut Workload, opening: &Opening) -> Result<(), Rejection> {
        let namespace = workload.meta.namespace.clone().unwrap_or_default();
        let name = match opening {
            Opening::Named(name) => name.clone(),
            Opening::Anonymous | Opening::On(_) => self.free_name(workload, &namespace),
        };
        workload.made += 1;
        let uid = workload.coined_uid(workload.made);
        let pod = self.pod_of(workload, PodKey { namespace, name: name.clone() }, uid);
        let node = match opening {
            Opening::On(node) => Some(node),
            Opening::Anonymous | Opening::Named(_) => None,
        };
        self.add_pod(pod, node)?;
        self.note_workload(workload, SUCCESSFUL_CREATE, format!("Created pod: {name}"));
        Ok(())
    }

    fn free_name(&self, workload: &mut Workload, namespace: &Text) -> Text {
        for _ in 0..NAMES_TRIED {
            let name = workload.coined_name(workload.made);
            if !self.state.pods.contains(&PodKey { namespace: namespace.clone(), name: name.clone() }) {
                return name;
            }
            workload.made += 1;
        }
        // The bare number: there are more numbers than coined names.
        Text::from(format!("{}-{}", workload.meta.name, workload.made))
    }

    fn pod_of(&self, workload: &Workload, key: PodKey, uid: Uid) -> Pod {
        let spec = &workload.spec;
        let labels = (spec.labels.clone(), spec.annotations.clone());
        let mut pod = self.new_pod(key, uid, labels, Box::new([workload.reference()]));
        pod.spec = spec.template.to_spec();
        let timeout = self.state.policy().pod_eviction_timeout;
        let own = &pod.spec.tolerations;
        pod.spec.tolerations = match workload.kind {
            WorkloadKind::DaemonSet => toleration::with_daemon_defaults(own, pod.spec.host_network),
            WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => toleration::with_defaults(own, timeout),
        };
        pod.unmodelled = spec.template.unmodelled.clone();
        pod
    }
}

// === what they have in common ===

impl Application<'_> {
    fn expect_workload(&self, key: &WorkloadKey, precondition: &Precondition) -> Result<Arc<Workload>, Rejection> {
        let (kind, name) = (Kind::Workload(key.kind), Text::clipped(&key.to_string(), 320));
        let Some(workload) = self.state.workloads.get(key) else { return Err(Rejection::NotFound { kind, name }) };
        self.check_precondition(kind, name, &workload.meta, precondition)?;
        Ok(workload.clone())
    }

    fn put_workload(&mut self, mut workload: Workload) -> Arc<Workload> {
        workload.meta.revision = self.next_revision();
        let workload = Arc::new(workload);
        let before = self.state.workloads.insert(workload.clone());
        self.state.derived.note_workload(&workload);
        self.touch::<Workload>(&workload.key());
        self.publish(before.map(Object::Workload), Some(Object::Workload(workload.clone())));
        workload
    }

    fn remove_workload(&mut self, workload: &Arc<Workload>) -> Revision {
        let key = workload.key();
        let last = self.state.workloads.remove(&key).unwrap_or_else(|| workload.clone());
        self.state.derived.forget_workload(workload);
        self.touch::<Workload>(&key);
        self.publish(Some(Object::Workload(last)), None)
    }

    fn note_workload(&mut self, workload: &Workload, reason: &str, message: String) {
        let (name, namespace) = (workload.meta.name.clone(), workload.meta.namespace.clone());
        let kind = Text::from(workload.kind.as_str());
        let source = format!("{}-controller", workload.kind.as_str().to_lowercase());
        let note = Note { event_type: EventType::Normal, reason, message, source: &source };
        self.record_event(Subject { kind, name, namespace, uid: workload.meta.uid }, note);
    }
}
