//! Spared nodes: nodes that are heard again when their eviction, or that of their pods, is due. They are passed over
//! for a while, in which they can report.
//!
//! The leader marked such a node as Unknown, and only the node's own report takes that back. Until the report is here
//! its beats speak for it, but not for ever: a node that lives but does not report is of no use.

use std::collections::BTreeMap;

use crate::object::node::{Node, Slot};
use crate::object::policy::Policy;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

/// An agent that is back reports with its first beat, or at the latest with the one after.
const BEATS_TO_REPORT: u64 = 2;

/// Holds only nodes whose turn it is. It is lost with the actor; then every node gets the while once more.
#[derive(Debug, Default)]
pub struct Spared(BTreeMap<Slot, Turn>);

/// When the node was first passed over: it was its turn, and it was heard again.
#[derive(Debug)]
struct Turn {
    name: Text,
    came: ClusterTime,
}

// === impl Spared ===

impl Spared {
    /// Whether the node, whose turn it is at `now`, is passed over. `heard` is its last beat, through any replica.
    pub fn passes_over(&mut self, node: &Node, heard: Option<ClusterTime>, policy: &Policy, now: ClusterTime) -> bool {
        if !is_heard_again(node, heard, policy, now) {
            self.0.remove(&node.slot);
            return false;
        }
        let turn = self.0.entry(node.slot).or_insert_with(|| Turn { name: node.meta.name.clone(), came: now });
        let while_to_report = Period(policy.beat_interval().0.saturating_mul(BEATS_TO_REPORT));
        now < while_to_report.after(turn.came)
    }

    /// Forgets the nodes that no longer wait.
    pub fn keep_only(&mut self, mut waits: impl FnMut(&str) -> bool) {
        self.0.retain(|_, turn| waits(&turn.name));
    }
}

/// A node that says itself that it is not ready does not count, however often it beats.
fn is_heard_again(node: &Node, heard: Option<ClusterTime>, policy: &Policy, now: ClusterTime) -> bool {
    node.is_unknown() && heard.is_some_and(|heard| now <= policy.node_monitor_grace_period.after(heard))
}
