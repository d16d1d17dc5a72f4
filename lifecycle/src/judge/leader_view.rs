//! The leader's view for its decisions: State, plus which node was heard when and whether the leader is blind.

use crate::command::LeaderOperation;
use crate::judge::oversight::{self, EvictionStep};
use crate::judge::spared::Spared;
use crate::judge::todo::{self, Todo};
use crate::object::node::Node;
use crate::object::policy::Policy;
use crate::object::zone::ZoneKey;
use crate::rule::condition_taint;
use crate::state::State;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

/// The next step for the eviction queue of one zone.
#[derive(Debug, PartialEq, Eq)]
pub enum NextEviction {
    Propose(LeaderOperation),
    /// The zones must be assessed before a token is spent.
    AssessFirst,
    LookAgainAt(ClusterTime),
    /// Nothing until the next round, or until something changes.
    Rest,
}

pub struct LeaderView<'a> {
    pub now: ClusterTime,
    /// An excuse that concerns every node is in force, or is about to be.
    pub is_blind: bool,
    /// Until when an excuse of any replica was last in force; now if one is.
    pub blind_until: ClusterTime,
    /// A node's last beat, through any replica.
    pub heard: &'a dyn Fn(&Node) -> Option<ClusterTime>,
}

/// How many beats a node may miss before no new pod is placed on it.
const BEATS_MISSED: u64 = 2;

/// How soon a blind leader tries again to place pods.
const BLIND_PAUSE: Period = Period(500);

// === impl LeaderView ===

impl LeaderView<'_> {
    /// The next step for the eviction queue of one zone. `spared` is what is remembered of this queue between two
    /// looks; `found_silent` counts the nodes of a zone whose verdicts are not in the log yet.
    pub fn next_eviction(
        &self,
        state: &State,
        zone: &ZoneKey,
        spared: &mut Spared,
        found_silent: &dyn Fn(&ZoneKey) -> u32,
    ) -> NextEviction {
        let queue = state.queue(zone);
        spared.keep_only(|name| queue.is_some_and(|queue| queue.contains(name)));
        let is_spared = |node: &Node| spared.passes_over(node, (self.heard)(node), state.policy(), self.now);
        match oversight::eviction_step_sparing(state, zone, self.now, is_spared) {
            EvictionStep::Idle => NextEviction::Rest,
            EvictionStep::WaitUntil(at) => NextEviction::LookAgainAt(at),
            // I-03: a leader that is blind now may have been blind when it judged.
            EvictionStep::Evict { .. } if self.is_blind => NextEviction::Rest,
            EvictionStep::Evict { .. } if oversight::is_about_to_change(state, zone, found_silent) => {
                NextEviction::Rest
            }
            EvictionStep::Evict { .. } if oversight::assessment_is_due(state, self.now) => NextEviction::AssessFirst,
            EvictionStep::Evict { name, incarnation } => {
                NextEviction::Propose(LeaderOperation::EvictNode { name, incarnation })
            }
        }
    }

    /// I-03: a blind leader may not know which nodes are back, and a node that is heard again may report at any
    /// moment. Pods that an operator's taint drives away go all the same.
    pub fn evictions(&self, state: &State, spared: &mut Spared, most: usize) -> Todo {
        if state.leaving_pods().len() == 0 {
            return Todo::default();
        }
        spared.keep_only(|name| state.absent().contains(name));
        let none_goes = self.is_blind || state.policy_state().suspends_evictions(self.now);
        let is_spared = |node: &Node| {
            is_lost(node) && (none_goes || spared.passes_over(node, (self.heard)(node), state.policy(), self.now))
        };
        todo::pod_evictions(state, self.now, most, is_spared)
    }

    /// GC-1 to GC-5. GC-3 rests on a silence, like a verdict: the quarantine begins again when a blindness ends,
    /// whichever replica it concerned, because the replica of a node that is gone is no longer known.
    pub fn garbage(&self, state: &State, most: usize) -> Todo {
        todo::pod_garbage(state, self.now, self.blind_until, most)
    }

    /// A blind leader places nothing. No leader places a pod on a node that was not heard of late.
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

/// The lifecycle's own taints drive the node's pods away.
fn is_lost(node: &Node) -> bool {
    !condition_taint::present_absences(&node.spec.taints).is_empty()
}
