//! Bindings: the leader found a node for a pod, or found none.
//!
//! The decision is checked again on the state that the entry finds: the pod may have a node, the node may be full. Then
//! nothing happens.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::judge::placement;
use crate::object::event::PodHappening;
use crate::object::node::{ConditionStatus, Incarnation, Node, READY};
use crate::object::pod::{Binding, POD_SCHEDULED, PODS_PER_NODE_MAX, Pod, PodKey};
use crate::rejection::{Limit, Rejection};
use crate::value::meta::Uid;
use crate::value::text::Text;

const UNSCHEDULABLE: &str = "Unschedulable";
const WHY_MAX: usize = 1024;

impl Application<'_> {
    pub(crate) fn bind_pod(&mut self, key: &PodKey, uid: Uid, node: &Text, incarnation: Incarnation) -> ApplyResult {
        let before = self.expect_waiting_pod(key, uid)?;
        let node = self.incarnate(node, incarnation)?;
        let load = self.state.tenants(&node.meta.name).map(|tenants| tenants.load().clone()).unwrap_or_default();
        if let Some(refusal) = placement::refusal(&before.spec, &node, &load) {
            let (name, node) = (Text::from(key.to_string()), node.meta.name.clone());
            return Err(Rejection::Unfit { name, node, why: refusal });
        }
        let mut after = before.as_ref().clone();
        self.bind_to(&mut after, &node)?;
        let pod = self.put_pod(after);
        self.note_pod(&pod, PodHappening::Bound { node: node.meta.name.clone() });
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
        // The message is data of the command, as in the event.
        after.status.set_condition(POD_SCHEDULED, ConditionStatus::False, (UNSCHEDULABLE, &why), self.now);
        // Stamps when the reason was last given, so that it is not repeated for every node that comes or goes.
        after.status.stamp_condition(POD_SCHEDULED, self.now);
        let pod = self.put_pod(after);
        self.note_pod(&pod, PodHappening::Unplaced { why });
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
            let what = Limit::PodsOnNode { node: node.meta.name.clone() };
            return Err(Rejection::limit(what, PODS_PER_NODE_MAX));
        }
        let (node_name, incarnation) = (node.meta.name.clone(), node.incarnation);
        pod.spec.binding = Some(Binding { node: node_name, incarnation, at: self.now });
        pod.status.set_condition(POD_SCHEDULED, ConditionStatus::True, ("", ""), self.now);
        if !node.is_ready() {
            pod.status.set_condition(READY, ConditionStatus::False, ("", ""), self.now);
        }
        Ok(())
    }
}
