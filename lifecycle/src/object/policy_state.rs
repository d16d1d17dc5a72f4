//! Policy state of the whole fleet: the policy in force, whether every zone is fully disrupted, and the reprieve.

use serde::{Deserialize, Serialize};

use crate::object::policy::Policy;
use crate::object::record::Versioned;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

/// The only record of its kind. Before the first change it is the default, and is not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FleetPolicyState {
    pub policy: Policy,
    /// The policy was decided in this cluster: what a replica's flags say no longer matters.
    pub founded: bool,
    /// Every zone is fully disrupted: nothing is evicted, and evictions under way are taken back.
    pub all_disrupted: bool,
    /// The last time in which no node may be judged. It may be over.
    pub reprieve: Option<Reprieve>,
}

/// A time in which all nodes are spared, whatever becomes of the policy meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reprieve {
    /// No node is judged up to this moment, and none is evicted before it.
    pub until: ClusterTime,
    pub because: ReprieveReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReprieveReason {
    /// All zones were fully disrupted: the cause that silenced all nodes may have only just ended.
    AllZonesDisrupted,
    /// The grace was shortened: agents still beat at the pace of the longer one until they are told.
    ShorterGrace,
}

/// How long it takes to tell the agents of a small fleet, with much to spare.
const TELLING: Period = Period::from_secs(5);

/// How many streams a replica tells in a millisecond, at least.
const TOLD_PER_MILLISECOND: u64 = 5;

impl Versioned for FleetPolicyState {}

impl FleetPolicyState {
    /// Until when all nodes are spared.
    pub fn spared_until(&self) -> Option<ClusterTime> {
        self.reprieve.map(|reprieve| reprieve.until)
    }

    /// Whether all zones are fully disrupted, or were until a short while ago.
    pub fn suspends_evictions(&self, now: ClusterTime) -> bool {
        self.all_disrupted || self.spared_until().is_some_and(|until| now < until)
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The policy state under another policy, decided at `now` for a fleet of this size.
    pub(crate) fn governed_by(&self, policy: Policy, nodes: usize, now: ClusterTime) -> Self {
        let shorter = policy.node_monitor_grace_period < self.policy.node_monitor_grace_period
            || policy.node_startup_grace_period < self.policy.node_startup_grace_period;
        let told = Period(TELLING.0.saturating_add(nodes as u64 / TOLD_PER_MILLISECOND)).after(now);
        let until = self.policy.beat_interval().after(told);
        let reprieve = Reprieve { until, because: ReprieveReason::ShorterGrace };
        Self { policy, founded: true, ..self.clone() }.sparing((shorter && nodes > 0).then_some(reprieve))
    }

    /// Of two reprieves the one that lasts longer counts.
    pub(crate) fn sparing(mut self, reprieve: Option<Reprieve>) -> Self {
        self.reprieve = self.reprieve.into_iter().chain(reprieve).max_by_key(|reprieve| reprieve.until);
        self
    }
}
