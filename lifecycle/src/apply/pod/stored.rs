//! Pods as they are stored: found, added, marked as deleted, put, removed and published.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Precondition, Receipt, ReceiptEffect};
use crate::object::event::{PodHappening, Subject};
use crate::object::kind::{Kind, WorkloadKind};
use crate::object::node::Node;
use crate::object::pod::{Ending, PODS_MAX, Pod, PodKey, PodStatus};
use crate::object::record::Stored;
use crate::object::workload::{Workload, WorkloadKey};
use crate::rejection::{Limit, Rejection};
use crate::rule;
use crate::state::State;
use crate::store::change::Object;
use crate::value::invalid::Invalid;
use crate::value::meta::{ObjectMeta, OwnerReference, Pairs, Uid};
use crate::value::text::{Text, fixed};
use crate::value::violation::PodViolation;

impl Application<'_> {
    pub(crate) fn expect_pod(&self, key: &PodKey, precondition: &Precondition) -> Result<Arc<Pod>, Rejection> {
        let name = || Text::clipped(&key.to_string(), 320);
        let Some(pod) = self.state.pods.get(key) else {
            return Err(Rejection::NotFound { kind: Kind::Pod, name: name() });
        };
        self.check_precondition(Kind::Pod, name(), &pod.meta, precondition)?;
        Ok(pod.clone())
    }

    pub(crate) fn expect_pod_of(&self, key: &PodKey, uid: Uid) -> Result<Arc<Pod>, Rejection> {
        self.expect_pod(key, &Precondition { revision: None, uid: Some(uid) })
    }

    pub(crate) fn tenants_of(&self, node: &Node) -> Vec<Arc<Pod>> {
        let mut pods = self.pods_on(&node.meta.name);
        pods.retain(|pod| pod.is_bound_to(&node.meta.name, node.incarnation));
        pods
    }

    pub(crate) fn pods_on(&self, name: &str) -> Vec<Arc<Pod>> {
        let tenants = self.state.tenants(name).into_iter().flat_map(|tenants| tenants.keys());
        tenants.filter_map(|key| self.state.pods.get(key)).cloned().collect()
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
            return Err(Rejection::limit(Limit::Pods, PODS_MAX));
        }
        if let Some(name) = node {
            let unknown = || Invalid::new("spec.nodeName", PodViolation::NoSuchNode { node: Text::clipped(name, 253) });
            let node = self.state.nodes.get(name).cloned().ok_or_else(unknown)?;
            self.bind_to(&mut pod, &node)?;
        }
        rule::pod::pod(&pod)?;
        rule::pod::pod_weight(&pod)?;
        let pod = self.put_pod(pod);
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Created })
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

    pub(crate) fn note_pod(&mut self, pod: &Pod, happening: PodHappening) {
        self.record_event(pod_subject(pod), happening);
    }
}

fn pod_subject(pod: &Pod) -> Subject {
    let (name, namespace) = (pod.meta.name.clone(), pod.meta.namespace.clone());
    Subject { kind: fixed!("Pod"), name, namespace, uid: pod.meta.uid }
}
