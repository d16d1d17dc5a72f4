//! What every actor of one tree stands on. It outlives them all, so it may hold what must not die with an actor.

use std::sync::Arc;

use muster_lifecycle::node::Node;
use muster_pulse::tick::Tick;

use crate::moment::Moment;
use crate::population::{Population, Presence};
use crate::proposal::Proposer;
use crate::quarantine::Quarantine;
use crate::surroundings::{ActorKind, Surroundings};

pub(crate) struct Ground {
    pub(crate) surroundings: Surroundings,
    pub(crate) proposer: Proposer,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) population: Arc<Population>,
    grown_at: Tick,
}

// === impl Ground ===

impl Ground {
    pub(crate) fn new(surroundings: Surroundings, term: u64) -> Arc<Self> {
        Arc::new(Self {
            proposer: Proposer::new(term, surroundings.proposals.clone()),
            quarantine: Quarantine::new(Arc::clone(&surroundings.observer)),
            population: Population::new(Arc::clone(&surroundings.observer)),
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

    /// An excuse that concerns everybody is in force.
    pub(crate) fn is_blind(&self, moment: Moment) -> bool {
        self.surroundings.ear.blindness().excused_until(None, moment.tick).is_some()
    }
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("proposer", &self.proposer).finish_non_exhaustive()
    }
}
