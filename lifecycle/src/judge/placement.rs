//! Placement of a pod that has no node: which nodes may take it, and which is best.
//!
//! [`refusal`] is the rule: one node, one pod, yes or no. `apply` asks it again before it binds. [`Board`] is the
//! preference: of the nodes that would take the pod it picks the zone with the fewest siblings, and there the least
//! loaded node.

mod board;

use std::collections::BTreeMap;
use std::fmt;

use crate::object::node::{ConditionStatus, Node};
pub use crate::object::pod::PlacementRefusal;
use crate::object::pod::PodSpec;
use crate::object::taint::UNSCHEDULABLE_TAINT;
use crate::object::toleration;
use crate::store::load::Load;
use crate::value::meta::Pairs;

pub use board::Board;

/// No node takes the pod. Each node is counted once, under the first reason that applies to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unplaced {
    pub nodes: usize,
    pub refusals: BTreeMap<PlacementRefusal, usize>,
}

/// Why this node does not take the pod; `None` if it does.
pub fn refusal(pod: &PodSpec, node: &Node, load: &Load) -> Option<PlacementRefusal> {
    refusal_by_node(pod, node)
        .or_else(|| load.shortage(&pod.requests, &node.status.allocatable).map(PlacementRefusal::Short))
}

/// The part of the refusal that does not depend on the other pods there.
fn refusal_by_node(pod: &PodSpec, node: &Node) -> Option<PlacementRefusal> {
    match node.status.ready().map(|ready| ready.status) {
        Some(ConditionStatus::True) => {}
        Some(ConditionStatus::Unknown) => return Some(PlacementRefusal::Unreachable),
        Some(ConditionStatus::False) | None => return Some(PlacementRefusal::NotReady),
    }
    if node.meta.deleted.is_some() {
        return Some(PlacementRefusal::Deleted);
    }
    match toleration::first_untolerated(&pod.tolerations, &node.spec.taints) {
        Some(taint) if taint.key == UNSCHEDULABLE_TAINT => return Some(PlacementRefusal::Cordoned),
        Some(taint) => return Some(PlacementRefusal::Taint(taint.key.clone())),
        None => {}
    }
    (!selects(&pod.node_selector, node)).then_some(PlacementRefusal::Selector)
}

pub fn selects(selector: &Pairs, node: &Node) -> bool {
    selector.iter().all(|(key, value)| node.meta.labels.get(key) == Some(value))
}

// === impl Unplaced ===

/// `0/60 nodes: 30 unreachable, 12 cordoned, 18 insufficient memory`.
impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes", self.nodes)?;
        for (index, (refusal, count)) in self.refusals.iter().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            write!(f, "{separator}{count} {refusal}")?;
        }
        Ok(())
    }
}
