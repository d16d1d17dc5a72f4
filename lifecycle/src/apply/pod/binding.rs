//! Bindings: the leader found a node for a pod, or found none.
//!
//! The decision is checked again on the state that the entry finds: the pod may have a node, the node may be full. Then
//! nothing happens.

use std::sync::Arc;

use crate::apply::event::Note;
use crate::apply::pod::stored::pod_subject;
use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::judge::placement;
use crate::object::event::EventType;
use crate::object::node::{ConditionStatus, Incarnation, Node, READY};
use crate::object::pod::{Binding, POD_SCHEDULED, PODS_PER_NODE_MAX, Pod, PodKey};
use crate::object::record::Stored;
use crate::rejection::Rejection;
use crate::value::meta::Uid;
use crate::value::text::Text;

const SCHEDULED: &str = "Scheduled";
const DEFAULT_SCHEDULER: &str = "default-scheduler";
const FAILED_SCHEDULING: &str = "FailedScheduling";
const UNSCHEDULABLE: &str = "Unschedulable";
const WHY_MAX: usize = 1024;

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
}
