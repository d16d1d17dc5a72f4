//! The context that all actors of one tree share. It outlives them, so it may hold what must not die with an actor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::clerk_task::EvictionsFirst;
use muster_lifecycle::node::Node;
use muster_pulse::moment::Moment;
use muster_pulse::node_watch;
use muster_pulse::tick::Tick;

use crate::ports::{ActorKind, Ports};
use crate::proposal::Proposer;
use crate::quarantine::Quarantine;
use crate::tree::actor_counts::{ActorCounts, Counted};
use crate::tree::found_silent::FoundSilent;
use crate::tree::spawn_pace::SpawnPace;

pub(crate) struct TreeContext {
    pub(crate) ports: Ports,
    pub(crate) proposer: Proposer,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) counts: Arc<ActorCounts>,
    evictions_first: Mutex<EvictionsFirst>,
    pub(crate) found_silent: FoundSilent,
    pub(crate) pace: SpawnPace,
    grown_at: Tick,
}

// === impl TreeContext ===

impl TreeContext {
    pub(crate) fn new(ports: Ports, term: u64) -> Arc<Self> {
        Arc::new(Self {
            proposer: Proposer::new(term, ports.proposals.clone()),
            quarantine: Quarantine::new(Arc::clone(&ports.observer)),
            counts: ActorCounts::new(Arc::clone(&ports.observer)),
            evictions_first: Mutex::default(),
            found_silent: FoundSilent::default(),
            pace: SpawnPace::default(),
            grown_at: ports.source.moment().tick,
            ports,
        })
    }

    pub(crate) fn count(&self, kind: ActorKind) -> Counted {
        self.counts.count(kind)
    }

    pub(crate) fn probe(&self, kind: ActorKind, name: &str) {
        self.ports.probe.before(kind, name);
    }

    /// From this moment on a node that no replica has heard counts as unheard. It does not depend on when an actor
    /// was rebuilt, because otherwise restarts could postpone marking the node.
    pub(crate) fn unheard_since(&self, node: &Node, moment: Moment) -> Tick {
        node_watch::unheard_since(self.grown_at, node, moment)
    }

    /// Not to be held across an await.
    pub(crate) fn evictions_first(&self) -> MutexGuard<'_, EvictionsFirst> {
        self.evictions_first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for TreeContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeContext").field("proposer", &self.proposer).finish_non_exhaustive()
    }
}
