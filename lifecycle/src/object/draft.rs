//! Drafts of Nodes: how a draft becomes a Node, or changes one.

use crate::object::node::{Incarnation, Node, NodeDraft, NodeSpec, NodeStatus, Slot};
use crate::object::taint::NOT_READY_TAINT;
use crate::object::taint::{self, Effect, Taint};
use crate::value::meta::{ObjectMeta, Revision, Uid};
use crate::value::text::Text;
use crate::value::time::Stamp;

impl NodeDraft {
    /// The Node that the draft describes, with its identity still to be filled in.
    pub(crate) fn to_node(&self) -> Node {
        Node {
            meta: ObjectMeta {
                name: self.name.clone(),
                namespace: None,
                uid: Uid::default(),
                revision: Revision::default(),
                generation: 1,
                created: Stamp::default(),
                deleted: None,
                labels: self.labels.clone().unwrap_or_default(),
                annotations: self.annotations.clone().unwrap_or_default(),
                owners: self.owners.clone().unwrap_or_default(),
                finalizers: self.finalizers.clone().unwrap_or_default(),
            },
            slot: Slot { index: 0, generation: 0 },
            incarnation: Incarnation::default(),
            spec: self.to_spec(),
            status: self.status.clone().unwrap_or_default(),
            unmodelled: self.unmodelled.clone(),
        }
    }

    /// A newly created Node: what the draft says, NV-6, and times for its taints.
    pub(crate) fn to_new_node(&self, uid: Uid, now: Stamp) -> Node {
        let mut node = self.to_node();
        node.meta.uid = uid;
        node.meta.created = now;
        node.status.settle_times(&NodeStatus::default(), now);
        let mut taints = std::mem::take(&mut node.spec.taints).into_vec();
        let not_ready = not_ready_taint();
        if !taints.iter().any(|taint| taint.is_same(&not_ready)) {
            taints.push(not_ready);
        }
        taint::settle_times(&mut taints, &[], now);
        node.spec.taints = taints.into_boxed_slice();
        node
    }

    /// An apply: only what the draft names changes; labels and annotations merge. Status is not touched (NV-9).
    pub(crate) fn applied_to(&self, before: &Node, now: Stamp) -> Node {
        let mut node = before.clone();
        if let Some(labels) = &self.labels {
            node.meta.labels = node.meta.labels.merged(labels);
        }
        if let Some(annotations) = &self.annotations {
            node.meta.annotations = node.meta.annotations.merged(annotations);
        }
        set(&mut node.meta.finalizers, &self.finalizers);
        set(&mut node.meta.owners, &self.owners);
        set(&mut node.spec.pod_cidrs, &self.pod_cidrs);
        set(&mut node.spec.unschedulable, &self.unschedulable);
        set(&mut node.spec.taints, &self.taints);
        node.spec.provider_id = filled(self.provider_id.clone().or(node.spec.provider_id));
        node.unmodelled = self.unmodelled.clone().or(node.unmodelled);
        taint::settle_times(&mut node.spec.taints, &before.spec.taints, now);
        node
    }

    /// A replace: what the draft does not name returns to its default. Status is not touched (NV-9).
    pub(crate) fn in_place_of(&self, before: &Node, now: Stamp) -> Node {
        let mut node = before.clone();
        node.meta.labels = self.labels.clone().unwrap_or_default();
        node.meta.annotations = self.annotations.clone().unwrap_or_default();
        node.meta.finalizers = self.finalizers.clone().unwrap_or_default();
        node.meta.owners = self.owners.clone().unwrap_or_default();
        node.spec = self.to_spec();
        node.unmodelled = self.unmodelled.clone();
        taint::settle_times(&mut node.spec.taints, &before.spec.taints, now);
        node
    }

    fn to_spec(&self) -> NodeSpec {
        NodeSpec {
            pod_cidrs: self.pod_cidrs.clone().unwrap_or_default(),
            provider_id: filled(self.provider_id.clone()),
            unschedulable: self.unschedulable.unwrap_or_default(),
            taints: self.taints.clone().unwrap_or_default(),
        }
    }
}

fn set<T: Clone>(place: &mut T, wanted: &Option<T>) {
    if let Some(wanted) = wanted {
        place.clone_from(wanted);
    }
}

/// An empty provider id is none.
fn filled(provider_id: Option<Text>) -> Option<Text> {
    provider_id.filter(|id| !id.is_empty())
}

fn not_ready_taint() -> Taint {
    Taint { key: Text::from(NOT_READY_TAINT), value: Text::default(), effect: Effect::NoSchedule, added: None }
}
