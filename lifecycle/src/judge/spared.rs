//! Who is about to be evicted, or to lose its pods, although it is heard again: passed over for a while, in which it can
//! say how it is.
//!
//! We marked such a node as Unknown, and only its own report takes that back. Until the report is here its beats speak
//! for it. They do not for ever: a node that lives but does not report is no use to anybody.

use std::collections::BTreeMap;

use crate::object::node::{ConditionStatus, Node, Slot};
use crate::object::policy::Policy;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

/// An agent that is back reports with its first beat, or at the latest with the one after.
const BEATS_TO_REPORT: u64 = 2;

/// No more than are about to be. Lost with the actor, which then gives everybody that while once more.
#[derive(Debug, Default)]
pub struct Spared(BTreeMap<Slot, Turn>);

/// When it was first passed over: it was its turn, and it was heard again.
#[derive(Debug)]
struct Turn {
    name: Text,
    came: ClusterTime,
}

// === impl Spared ===

impl Spared {
    /// Whether the node, whose turn it is at `now`, is passed over. `heard` is its last beat, whoever heard it.
    pub fn passes_over(&mut self, node: &Node, heard: Option<ClusterTime>, policy: &Policy, now: ClusterTime) -> bool {
        if !is_heard_again(node, heard, policy, now) {
            self.0.remove(&node.slot);
            return false;
        }
        let turn = self.0.entry(node.slot).or_insert_with(|| Turn { name: node.meta.name.clone(), came: now });
        let while_to_report = Period(policy.beat_interval().0.saturating_mul(BEATS_TO_REPORT));
        now < while_to_report.after(turn.came)
    }

    /// Forgets who does not wait any more.
    pub fn keep_only(&mut self, mut waits: impl FnMut(&str) -> bool) {
        self.0.retain(|_, turn| waits(&turn.name));
    }
}

/// A node that says itself that it is not ready is not meant, however loudly it beats.
fn is_heard_again(node: &Node, heard: Option<ClusterTime>, policy: &Policy, now: ClusterTime) -> bool {
    let is_unknown = node.status.ready().is_some_and(|ready| ready.status == ConditionStatus::Unknown);
    is_unknown && heard.is_some_and(|heard| now <= policy.node_monitor_grace_period.after(heard))
}
