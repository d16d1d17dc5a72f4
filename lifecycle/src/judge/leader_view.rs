//! What a leader's ear adds to the state when it decides about pods: who was heard when, and whether it hears at all.

use crate::judge::spared::Spared;
use crate::judge::todo::{self, Todo};
use crate::object::node::Node;
use crate::object::policy::Policy;
use crate::rule::condition_taint;
use crate::state::State;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

pub struct LeaderView<'a> {
    pub now: ClusterTime,
    /// An excuse that concerns everybody is in force.
    pub is_blind: bool,
    /// A node's last beat, whoever heard it.
    pub heard: &'a dyn Fn(&Node) -> Option<ClusterTime>,
}

/// How many beats a node may miss before nothing new is placed on it.
const BEATS_MISSED: u64 = 2;

/// How soon somebody who cannot hear tries again to place pods.
const BLIND_PAUSE: Period = Period(500);

// === impl LeaderView ===

impl LeaderView<'_> {
    /// I-03: whoever is blind may not know who is back, and whoever is heard again may report any moment. What an
    /// operator's taint drives away goes all the same.
    pub fn evictions(&self, state: &State, spared: &mut Spared, most: usize) -> Todo {
        if state.leaving_pods().len() == 0 {
            return Todo::default();
        }
        spared.keep_only(|name| state.absent().contains(name));
        let nobody_goes = self.is_blind || state.policy_state().suspends_evictions(self.now);
        let is_spared = |node: &Node| {
            is_lost(node) && (nobody_goes || spared.passes_over(node, (self.heard)(node), state.policy(), self.now))
        };
        todo::pod_evictions(state, self.now, most, is_spared)
    }

    /// Nothing is placed by somebody who cannot hear, nor on a node that has not been heard of late.
    pub fn placements(&self, state: &State, most: usize) -> Todo {
        if state.waiting_pods().len() == 0 {
            return Todo::default();
        }
        if self.is_blind {
            return Todo { operations: Vec::new(), look_again_at: Some(BLIND_PAUSE.after(self.now)) };
        }
        let is_unheard = |node: &Node| !self.is_heard_of_late((self.heard)(node), state.policy());
        todo::placements(state, self.now, most, is_unheard)
    }

    fn is_heard_of_late(&self, heard: Option<ClusterTime>, policy: &Policy) -> bool {
        let patience = Period(policy.beat_interval().0.saturating_mul(BEATS_MISSED));
        heard.is_some_and(|heard| self.now <= patience.after(heard))
    }
}

/// It is the lifecycle that drives its pods away.
fn is_lost(node: &Node) -> bool {
    !condition_taint::present_absences(&node.spec.taints).is_empty()
}
