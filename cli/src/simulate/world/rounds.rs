//! The rounds of a leader: it asks the product's judging functions what to do, does it, and asks again.
//!
//! As in the product it looks in every round, when something was written, and when a look said when to look again.
//! This file only has when to ask and in which order, which the actors do concurrently; the decisions are made
//! elsewhere.

use muster_lifecycle::clerk_task::ClerkTask;
use muster_lifecycle::command::{LeaderOperation, Outcome, ReceiptEffect};
use muster_lifecycle::leader_view::NextEviction;
use muster_lifecycle::oversight;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo::Todo;
use muster_lifecycle::zone::ZoneKey;

use super::{CLUSTER_TIME_AT_START, Millis, Witness, World};

/// A token a millisecond is the highest rate, and an assessment may come before it: more looks at one queue than that
/// mean that nothing moves.
const LOOKS_MAX: usize = 8;

/// What one look finds may be cause for another. More looks than this at one instant mean that they have no effect.
const PASSES_MAX: usize = 64;

impl<W: Witness> World<W> {
    pub(super) fn rounds(&mut self) {
        if !self.can_write() {
            return;
        }
        let now = self.now;
        let Some(leader) = &mut self.brain else { return };
        let is_round = leader.next_round <= now;
        let rings = leader.next_look.take_if(|at| *at <= now).is_some();
        if is_round {
            self.round();
        }
        self.look(is_round || rings);
    }

    fn round(&mut self) {
        self.lift();
        let (now, moment) = (self.now, self.moment());
        let (next_round, next_assessment) = (
            oversight::next_round(self.state.policy(), moment.stamp.cluster),
            oversight::next_assessment(self.state.policy(), moment.stamp.cluster),
        );
        let Some(leader) = &mut self.brain else { return };
        leader.next_round = since_start(next_round);
        if leader.next_assessment <= now {
            leader.next_assessment = since_start(next_assessment);
            self.assess();
        }
        self.judge();
    }

    fn judge(&mut self) {
        let moment = self.moment();
        let (Some(leader), Some(replica)) = (&mut self.brain, self.leader) else { return };
        let operations = leader.judge(&self.state, &self.replicas[replica].pulses, moment);
        if !operations.is_empty() {
            self.propose(operations.clone());
            self.brain.iter_mut().for_each(|leader| leader.settled(&operations));
        }
    }

    fn assess(&mut self) {
        if oversight::assessment_is_due(&self.state, self.cluster_now()) {
            self.propose(vec![LeaderOperation::AssessZones]);
            self.lift();
        }
    }

    /// Z-6: while every zone is fully disrupted.
    fn lift(&mut self) {
        while let Some(lift) = oversight::lift(&self.state) {
            if !self.propose(vec![lift]).iter().all(has_changed_something) {
                return;
            }
        }
    }

    /// Looks at the queues and does the clerks' tasks until nothing changes any more.
    fn look(&mut self, mut is_due: bool) {
        for _ in 0..PASSES_MAX {
            let disturbed = self.brain.as_mut().is_some_and(|leader| std::mem::take(&mut leader.disturbed));
            if !(std::mem::take(&mut is_due) || disturbed) {
                return;
            }
            let zones: Vec<ZoneKey> = self.state.queues().map(|(zone, _)| zone.clone()).collect();
            let evictions = zones.iter().filter_map(|zone| self.evict_in(zone)).min();
            let tasks = ClerkTask::ALL.into_iter().filter_map(|task| self.work_off(task)).min();
            if let Some(leader) = &mut self.brain {
                leader.next_look = evictions.into_iter().chain(tasks).min();
            }
        }
    }

    /// When to look at this queue again, if that is before the next round.
    fn evict_in(&mut self, zone: &ZoneKey) -> Option<Millis> {
        for _ in 0..LOOKS_MAX {
            let moment = self.moment();
            let (leader, replica) = (self.brain.as_mut()?, self.leader?);
            let spared = leader.spared.entry(zone.clone()).or_default();
            let state = &self.state;
            // Verdicts are written at once: none is in flight.
            let next = self.replicas[replica]
                .pulses
                .view(state.policy(), moment, |view| view.next_eviction(state, zone, spared, &|_| 0));
            match next {
                NextEviction::Rest => return None,
                NextEviction::LookAgainAt(at) => return Some(since_start(at)),
                NextEviction::AssessFirst => self.assess(),
                NextEviction::Propose(operation) => {
                    if !self.propose(vec![operation]).iter().all(has_changed_something) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Does the task until nothing is left of it. Returns when to look at it again, if that is before the next round.
    fn work_off(&mut self, task: ClerkTask) -> Option<Millis> {
        for _ in 0..PASSES_MAX {
            let moment = self.moment();
            let (leader, replica) = (self.brain.as_mut()?, self.leader?);
            let now = moment.stamp.cluster;
            if let Some(until) = leader.evictions_first.wait_until(task, now) {
                return Some(since_start(until));
            }
            let (state, spared) = (&self.state, &mut leader.spared_pods);
            let Todo { operations, look_again_at } =
                self.replicas[replica].pulses.view(state.policy(), moment, |view| task.look(state, view, spared));
            leader.evictions_first.found(task, &operations, now);
            let again = look_again_at.map(since_start);
            if operations.is_empty() || !self.propose(operations).iter().any(has_changed_something) {
                return again;
            }
        }
        None
    }
}

fn has_changed_something(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(receipt) => receipt.effect != ReceiptEffect::Unchanged,
        Outcome::Rejected(_) => false,
    }
}

fn since_start(moment: ClusterTime) -> Millis {
    moment.0.saturating_sub(CLUSTER_TIME_AT_START)
}
