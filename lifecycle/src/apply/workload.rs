//! Commands of operators about workloads, and workloads as they are stored.

mod staffing;

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Precondition, Receipt, ReceiptEffect};
use crate::object::event::{PodHappening, Subject};
use crate::object::kind::{Kind, WorkloadKind};
use crate::object::record::Stored;
use crate::object::workload::{WORKLOADS_MAX, Workload, WorkloadDraft, WorkloadKey, WorkloadSpec};
use crate::rejection::{Limit, Rejection};
use crate::rule;
use crate::store::change::Object;
use crate::value::meta::{ObjectMeta, Pairs, Revision, Uid};
use crate::value::text::Text;

impl Application<'_> {
    pub(crate) fn create_workload(&mut self, draft: &WorkloadDraft, uid: Uid) -> ApplyResult {
        draft.check()?;
        let key = &draft.key;
        if self.state.workloads.contains(key) {
            let kind = Kind::Workload(key.kind);
            return Err(Rejection::AlreadyExists { kind, name: Text::from(key.to_string()) });
        }
        if self.state.workloads.len() >= WORKLOADS_MAX {
            return Err(Rejection::limit(Limit::Workloads, WORKLOADS_MAX));
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

    fn note_workload(&mut self, workload: &Workload, happening: PodHappening) {
        let (name, namespace) = (workload.meta.name.clone(), workload.meta.namespace.clone());
        let kind = Text::from(workload.kind.as_str());
        self.record_event(Subject { kind, name, namespace, uid: workload.meta.uid }, happening);
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
