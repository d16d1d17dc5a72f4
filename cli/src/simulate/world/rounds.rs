//! What happens round by round: digests between replicas, and the leader's sweeps, assessments, evictions and chores.

use muster_lifecycle::command::{Command, Operation, Origin, Outcome, ReceiptEffect};
use muster_lifecycle::oversight::{self, EvictionStep};
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;

use super::replica::{self, Replica};
use super::{CLUSTER_TIME_AT_START, Millis, REPLICAS, ReplicaIndex, Witness, World, next_multiple};

/// A token a millisecond is the highest rate, and an assessment may come before it: more looks than that mean that
/// nothing moves.
const LOOKS_MAX: usize = 8;

// === digests ===

impl<W: Witness> World<W> {
    pub(super) fn exchange_digests(&mut self) {
        for listener in 0..REPLICAS {
            for teller in (0..REPLICAS).filter(|teller| *teller != listener) {
                self.pull(listener, teller);
            }
        }
        self.follow_contact();
    }

    fn pull(&mut self, listener: ReplicaIndex, teller: ReplicaIndex) {
        if !self.replicas[listener].is_awake() {
            return;
        }
        let cut = self.cut[listener][teller];
        match self.replicas.get_disjoint_mut([listener, teller]) {
            Ok([listening, telling]) if telling.is_awake() && cut => {
                replica::pull_in_vain(listening, telling, self.now)
            }
            Ok([listening, telling]) if telling.is_awake() => {
                replica::pull(listening, telling, self.now);
                self.witness.told(self.now, listener, teller);
            }
            Ok([listening, _]) => listening.digest_missed(teller, self.now),
            Err(_) => {}
        }
    }
}

// === the leader ===

impl<W: Witness> World<W> {
    pub(super) fn rounds(&mut self) {
        if !self.can_write() {
            return;
        }
        let is_round = self.next_sweep <= self.now;
        if is_round {
            self.sweep();
            self.next_sweep = next_multiple(self.now, self.policy.sweep_period().0);
        }
        if self.next_assessment <= self.now {
            self.assess_if_due();
            self.next_assessment = next_multiple(self.now, self.policy.node_monitor_period.0);
        }
        if self.disturbed || self.next_eviction.is_some_and(|at| at <= self.now) {
            self.disturbed = false;
            self.evict();
            self.take_back_evictions();
            self.disturbed = false;
        }
        self.do_chores(is_round);
    }

    fn sweep(&mut self) {
        let moment = self.moment();
        let Some(leader) = &mut self.leader else { return };
        let replica: &mut Replica = &mut self.replicas[leader.replica];
        let operations = leader.round(&self.state, replica, moment);
        if operations.is_empty() {
            return;
        }
        self.apply(operations.iter().cloned().map(|operation| self.proposal(operation)).collect());
        if let Some(leader) = &mut self.leader {
            leader.settled(&operations);
        }
    }

    pub(super) fn proposal(&self, operation: Operation) -> Command {
        Command { origin: Origin::Controller { term: self.term }, request: None, operation }
    }

    fn assess_if_due(&mut self) {
        let transition = self.state.zone_transition(self.cluster_now());
        if transition.is_quiet() {
            return;
        }
        self.apply(vec![self.proposal(Operation::AssessZones)]);
        self.witness.zones_moved(self.now, &transition);
    }

    /// Z-6: while every zone is dark.
    fn take_back_evictions(&mut self) {
        while let Some(lift) = oversight::lift(&self.state) {
            let outcomes = self.apply(vec![self.proposal(lift)]);
            if !outcomes.iter().all(has_changed_something) {
                return;
            }
        }
    }

    fn evict(&mut self) {
        let zones: Vec<ZoneKey> = self.state.queues().map(|(zone, _)| zone.clone()).collect();
        self.next_eviction = zones.iter().filter_map(|zone| self.evict_in(zone)).min();
    }

    /// When to look at this zone again.
    fn evict_in(&mut self, zone: &ZoneKey) -> Option<Millis> {
        for _ in 0..LOOKS_MAX {
            match oversight::eviction_step(&self.state, zone, self.cluster_now()) {
                EvictionStep::Idle => return None,
                EvictionStep::WaitUntil(moment) => return Some(since_start(moment)),
                EvictionStep::Evict { name, incarnation } => {
                    if let Some(until) = self.blind_until() {
                        return Some(until);
                    }
                    if oversight::assessment_is_due(&self.state, self.cluster_now()) {
                        self.assess_if_due();
                        continue;
                    }
                    let outcomes = self.apply(vec![self.proposal(Operation::EvictNode { name, incarnation })]);
                    if !outcomes.iter().all(has_changed_something) {
                        break;
                    }
                }
            }
        }
        Some(next_multiple(self.now, self.policy.sweep_period().0))
    }

    /// Until when an excuse that concerns everybody is in force.
    fn blind_until(&self) -> Option<Millis> {
        let leader = &self.replicas[self.leader.as_ref()?.replica];
        let now = leader.tick(self.now);
        let (until, _) = leader.blindness.excused_until(None, now)?;
        let wait = Millis::try_from(until.elapsed_since(now).as_millis()).unwrap_or(Millis::MAX);
        Some(self.now.saturating_add(wait))
    }
}

pub(super) fn has_changed_something(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(receipt) => receipt.effect != ReceiptEffect::Unchanged,
        Outcome::Rejected(_) => false,
    }
}

pub(super) fn since_start(moment: ClusterTime) -> Millis {
    moment.0.saturating_sub(CLUSTER_TIME_AT_START)
}
