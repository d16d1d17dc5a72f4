//! What every actor of one tree stands on. It outlives them all, so it may hold what must not die with an actor.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::Node;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::time::Period;
use muster_pulse::tick::Tick;

use crate::pace::Pace;
use crate::population::{Population, Presence};
use crate::precedence::Precedence;
use crate::proposal::Proposer;
use crate::quarantine::Quarantine;
use crate::surroundings::{ActorKind, Surroundings};
use muster_pulse::moment::Moment;

pub(crate) struct Ground {
    pub(crate) surroundings: Surroundings,
    pub(crate) proposer: Proposer,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) population: Arc<Population>,
    pub(crate) precedence: Precedence,
    pub(crate) pace: Pace,
    grown_at: Tick,
}

// === impl Ground ===

impl Ground {
    pub(crate) fn new(surroundings: Surroundings, term: u64) -> Arc<Self> {
        Arc::new(Self {
            proposer: Proposer::new(term, surroundings.proposals.clone()),
            quarantine: Quarantine::new(Arc::clone(&surroundings.observer)),
            population: Population::new(Arc::clone(&surroundings.observer)),
            precedence: Precedence::default(),
            pace: Pace::default(),
            grown_at: surroundings.ledger.moment().tick,
            surroundings,
        })
    }

    pub(crate) fn enter(&self, kind: ActorKind) -> Presence {
        self.population.enter(kind)
    }

    pub(crate) fn probe(&self, kind: ActorKind, name: &str) {
        self.surroundings.probe.before(kind, name);
    }

    /// From when on a node that nobody has heard counts as unheard. It does not depend on when an actor was rebuilt, or a
    /// node could be kept alive by crashes.
    pub(crate) fn unheard_since(&self, node: &Node, moment: Moment) -> Tick {
        self.grown_at.max(moment.tick_of(node.meta.created.cluster))
    }

    /// An excuse that concerns everybody is in force, or is about to be because the round that notices it is overdue.
    pub(crate) fn is_blind(&self, policy: &Policy, moment: Moment) -> bool {
        let (period, grace) = (duration(policy.sweep_period()), duration(policy.shortest_grace()));
        let blindness = self.surroundings.pulses.blindness();
        blindness.excused_until(None, moment.tick).is_some() || blindness.is_overdue(moment.tick, period, grace)
    }
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("proposer", &self.proposer).finish_non_exhaustive()
    }
}

fn duration(period: Period) -> Duration {
    Duration::from_millis(period.0)
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::replica::ReplicaId;
    use muster_lifecycle::state::State;
    use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
    use muster_pulse::monitor::PulseMonitor;
    use tokio::sync::mpsc;

    use super::*;
    use crate::surroundings::{Ledger, Quiet};

    /// I-03: whoever wakes up first after a stall may be an eviction queue.
    #[test]
    fn whoever_asks_before_the_late_round_is_told_that_we_are_blind() {
        let (ground, policy) = (ground(), Policy::default());
        let (period, grace) = (duration(policy.sweep_period()), duration(policy.shortest_grace()));
        let pulses = &ground.surroundings.pulses;
        pulses.blindness().tick(moment(100).tick, period, grace);
        assert!(!ground.is_blind(&policy, moment(101)));
        assert!(ground.is_blind(&policy, moment(160)), "no round for a minute");
        pulses.blindness().tick(moment(160).tick, period, grace);
        assert!(ground.is_blind(&policy, moment(161)), "the round has noticed it");
        for second in 161..=200 {
            pulses.blindness().tick(moment(second).tick, period, grace);
        }
        assert!(!ground.is_blind(&policy, moment(200)));
    }

    struct NoLedger;

    impl Ledger for NoLedger {
        fn state(&self) -> State {
            State::new()
        }

        fn moment(&self) -> Moment {
            moment(0)
        }
    }

    fn moment(seconds: u64) -> Moment {
        let stamp = Stamp { cluster: ClusterTime(seconds * 1000), wall: WallTime(0) };
        Moment { tick: Tick::since_boot(Duration::from_secs(seconds)), stamp }
    }

    fn ground() -> Arc<Ground> {
        let surroundings = Surroundings {
            pulses: Arc::new(PulseMonitor::new(ReplicaId(1), Duration::from_secs(10))),
            ledger: Arc::new(NoLedger),
            proposals: mpsc::channel(1).0,
            observer: Arc::new(Quiet),
            probe: Arc::new(Quiet),
        };
        Ground::new(surroundings, 1)
    }
}
