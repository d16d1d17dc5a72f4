//! A transition: what a node's judgement wants to propose, and whether it is still valid.

use std::sync::Arc;

use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::health::Verdict;
use muster_lifecycle::node::{Node, Slot};
use muster_lifecycle::state::State;
use muster_pulse::blindness::{Blindness, Trace};
use muster_pulse::by_replica::PulseTables;
use muster_pulse::moment::Moment;
use muster_pulse::tick::Tick;

use muster_pulse::node_watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) slot: Slot,
    pub(crate) operation: LeaderOperation,
    /// The last beat as known at the time of the decision; `None` if it does not rest on silence.
    pub(crate) trace: Option<Trace>,
}

// === impl Transition ===

impl Transition {
    /// A transition may wait its turn behind many others. If its node was heard meanwhile, or we went blind, it is not
    /// proposed (I-03): the node is judged anew.
    pub(crate) fn stands(&self, tables: &PulseTables, blindness: &Blindness, now: Tick) -> bool {
        let Some(trace) = self.trace else { return true };
        let heard = tables.last_heard(self.slot).map(|(at, _)| at);
        let known = match trace {
            Trace::Heard { at, .. } => Some(at),
            Trace::Unplaced { .. } => None,
        };
        heard == known && !blindness.is_excused(trace, now)
    }

    /// Renews the transition as if it were decided now; false if it would not be decided any more. Where many wait, a
    /// verdict would be older by its turn than the log accepts.
    pub(crate) fn renew(&mut self, state: &State, tables: &PulseTables, blindness: &Blindness, now: Moment) -> bool {
        let stands = self.stands(tables, blindness, now.tick);
        let (Some(trace), LeaderOperation::MarkSilent { name, incarnation, decided, .. }) =
            (self.trace, &mut self.operation)
        else {
            return stands;
        };
        *decided = now.stamp.cluster;
        let node = state.node(name).filter(|node| node.incarnation == *incarnation);
        let is_silent = |node: &Arc<Node>| {
            let evidence = node_watch::evidence(state, node, trace, blindness, now);
            matches!(evidence.verdict(state.policy()), Verdict::Silent(changes) if !changes.is_empty())
        };
        stands && node.is_some_and(is_silent)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_lifecycle::replica::ReplicaId;

    use super::*;

    const SLOT: Slot = Slot { index: 3, generation: 1 };

    fn at(seconds: u64) -> Tick {
        Tick::since_boot(Duration::from_secs(seconds))
    }

    fn transition(trace: Option<Trace>) -> Transition {
        Transition { slot: SLOT, operation: LeaderOperation::AssessZones, trace }
    }

    #[test]
    fn a_verdict_is_void_when_the_node_is_heard_or_the_leader_is_blind() {
        let (tables, mut blindness) = (PulseTables::new(ReplicaId(1)), Blindness::new(Duration::from_secs(1)));
        let _ = tables.own().beat(SLOT, at(10));
        let verdict = transition(Some(Trace::Heard { at: at(10), through: ReplicaId(1) }));
        assert!(verdict.stands(&tables, &blindness, at(60)));
        blindness.quorum_lost(at(61));
        assert!(!verdict.stands(&tables, &blindness, at(61)));
        blindness.quorum_heard(at(62));
        assert!(verdict.stands(&tables, &blindness, at(70)));
        let _ = tables.own().beat(SLOT, at(71));
        assert!(!verdict.stands(&tables, &blindness, at(71)));
    }

    #[test]
    fn a_verdict_on_a_node_that_was_never_heard_is_void_after_its_first_beat() {
        let (tables, blindness) = (PulseTables::new(ReplicaId(1)), Blindness::new(Duration::from_secs(1)));
        let verdict = transition(Some(Trace::Unplaced { since: at(0) }));
        assert!(verdict.stands(&tables, &blindness, at(60)));
        let _ = tables.own().beat(SLOT, at(60));
        assert!(!verdict.stands(&tables, &blindness, at(60)));
        assert!(transition(None).stands(&tables, &blindness, at(60)));
    }
}
