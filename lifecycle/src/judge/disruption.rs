//! Disruption of zones: how much of each is lost, and how fast its lost nodes may be evicted (Z-1 to Z-10).
//!
//! Many nodes lost at once are rarely many broken machines: more often their network is broken, or the leader's. So a
//! zone that loses a large part of its nodes evicts slowly or not at all. When every zone is fully disrupted the
//! leader suspects itself, stops, and takes back what it began.
//!
//! [`Zones::advance`] moves all zones from one state to the next. It works the rates out anew each time and compares
//! them with those in force, so that a zone that grows or a setting that changes takes effect at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::object::policy::{Fraction, Policy, Rate, SizeScope};
use crate::object::zone::{Zone, ZoneKey, ZoneState};
use crate::state::State;
use crate::store::census::Census;
use crate::value::time::{ClusterTime, Stamp};

/// Up to this many lost nodes are not a disruption, whatever their share.
pub const LOST_NODES_TOLERATED: u64 = 2;

/// How fast a zone may lose nodes to eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Primary,
    /// Partially disrupted. `size` was compared with the threshold and is above it.
    Secondary {
        size: u64,
    },
    /// Partially disrupted, and too small for the secondary rate.
    Halted {
        size: u64,
    },
}

/// The remembered state of all zones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Zones {
    pub zones: BTreeMap<ZoneKey, Zone>,
    /// Every zone is fully disrupted. Kept apart from the zones' states: a zone that has just appeared or vanished
    /// says nothing about what the leader did before (Z-10).
    pub all_disrupted: bool,
}

/// One step of all zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub next: Zones,
    pub states: Vec<StateChange>,
    pub rates: Vec<RateChange>,
    /// Zones without any node, to be forgotten with their queues and buckets.
    pub vanished: Vec<ZoneKey>,
    pub full_disruption: Option<FullDisruptionChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    pub zone: ZoneKey,
    pub from: ZoneState,
    pub to: ZoneState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateChange {
    pub zone: ZoneKey,
    pub from: Rate,
    pub to: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDisruptionChange {
    /// All zones became fully disrupted. Lift the lifecycle NoExecute taints of every node, which cancels the
    /// evictions that are under way, and empty every queue. All rates are zero.
    Enter,
    /// A node is heard again. The cause that kept the leader from hearing any node may have only just ended, so every
    /// node's grace starts at this moment.
    Leave { grace_from: ClusterTime },
}

// === impl Census ===

impl Census {
    /// Z-3. A zone in which no node counts gives no sign of disruption.
    pub fn state(&self, threshold: Fraction) -> ZoneState {
        let not_ready = u64::from(self.not_ready);
        if self.ready == 0 && not_ready > 0 {
            ZoneState::FullDisruption
        } else if not_ready > LOST_NODES_TOLERATED && threshold.is_reached_by(not_ready, self.size()) {
            ZoneState::PartialDisruption
        } else {
            ZoneState::Normal
        }
    }
}

// === impl ZoneState ===

impl ZoneState {
    /// Z-5: the pace while not all zones are fully disrupted. The sizes are numbers of nodes that count.
    ///
    /// A zone that is fully disrupted while others are not is evacuated at the full rate: its machines are gone, and
    /// other zones have room. The nodes of a partially disrupted zone may come back, so it evicts
    /// slowly or not at all.
    pub fn pace(self, zone_size: u64, cluster_size: u64, policy: &Policy) -> Pace {
        let size = match policy.large_cluster_size_scope {
            SizeScope::Zone => zone_size,
            SizeScope::Cluster => cluster_size,
        };
        match self {
            Self::Initial | Self::Normal | Self::FullDisruption => Pace::Primary,
            Self::PartialDisruption if size > u64::from(policy.large_cluster_size_threshold) => {
                Pace::Secondary { size }
            }
            Self::PartialDisruption => Pace::Halted { size },
        }
    }

    pub fn eviction_rate(self, zone_size: u64, cluster_size: u64, policy: &Policy) -> Rate {
        self.pace(zone_size, cluster_size, policy).rate(policy)
    }
}

impl Pace {
    pub fn rate(self, policy: &Policy) -> Rate {
        match self {
            Self::Primary => policy.node_eviction_rate,
            Self::Secondary { .. } => policy.secondary_node_eviction_rate,
            Self::Halted { .. } => Rate::NEVER,
        }
    }
}

// === impl Zones ===

impl Zones {
    /// Z-6: the next step of all zones, given the nodes in them now.
    pub fn advance(&self, census: &BTreeMap<ZoneKey, Census>, policy: &Policy, now: Stamp) -> Transition {
        let all_disrupted = self.is_all_disrupted(census, policy.unhealthy_zone_threshold);
        let cluster = census.values().map(Census::size).sum();
        let mut step = Transition {
            next: Self { zones: BTreeMap::new(), all_disrupted },
            states: Vec::new(),
            rates: Vec::new(),
            vanished: self.vanished(census),
            full_disruption: self.full_disruption_change(all_disrupted, now.cluster),
        };
        for (key, census) in census.iter().filter(|(_, census)| !census.is_deserted()) {
            // Z-2: a zone starts out undisrupted.
            let newcomer = Zone { state: ZoneState::Initial, since: now, rate: policy.node_eviction_rate };
            let before = self.zones.get(key).copied().unwrap_or(newcomer);
            let state = census.state(policy.unhealthy_zone_threshold);
            let rate = if all_disrupted { Rate::NEVER } else { state.eviction_rate(census.size(), cluster, policy) };
            step.record(key, before, Zone { state, since: now, rate });
        }
        step
    }

    /// Zones in which no node counts are left out. If no node counts anywhere, nothing changes.
    fn is_all_disrupted(&self, census: &BTreeMap<ZoneKey, Census>, threshold: Fraction) -> bool {
        let mut states = census.values().filter(|census| census.size() > 0).map(|census| census.state(threshold));
        match states.next() {
            None => self.all_disrupted,
            Some(first) => std::iter::once(first).chain(states).all(|state| state == ZoneState::FullDisruption),
        }
    }

    /// Z-8: all vanished zones at once.
    fn vanished(&self, census: &BTreeMap<ZoneKey, Census>) -> Vec<ZoneKey> {
        self.zones.keys().filter(|key| census.get(key).is_none_or(Census::is_deserted)).cloned().collect()
    }

    fn full_disruption_change(&self, all_disrupted: bool, now: ClusterTime) -> Option<FullDisruptionChange> {
        match (self.all_disrupted, all_disrupted) {
            (false, true) => Some(FullDisruptionChange::Enter),
            (true, false) => Some(FullDisruptionChange::Leave { grace_from: now }),
            (false, false) | (true, true) => None,
        }
    }
}

// === impl Transition ===

impl Transition {
    /// Whether nothing is left to say or do.
    pub fn is_quiet(&self) -> bool {
        self.states.is_empty() && self.rates.is_empty() && self.vanished.is_empty() && self.full_disruption.is_none()
    }

    fn record(&mut self, key: &ZoneKey, before: Zone, mut after: Zone) {
        if before.state == after.state {
            after.since = before.since;
        } else {
            self.states.push(StateChange { zone: key.clone(), from: before.state, to: after.state });
        }
        if before.rate != after.rate {
            self.rates.push(RateChange { zone: key.clone(), from: before.rate, to: after.rate });
        }
        self.next.zones.insert(key.clone(), after);
    }
}

// === impl State ===

impl State {
    /// What an assessment of the zones would change.
    pub fn zone_transition(&self, now: Stamp) -> Transition {
        let known = self.zones.iter().map(|record| (record.key.clone(), record.zone)).collect();
        let zones = Zones { zones: known, all_disrupted: self.policy_state.all_disrupted };
        let census: BTreeMap<ZoneKey, Census> = self.census().map(|(key, census)| (key.clone(), *census)).collect();
        let mut transition = zones.advance(&census, &self.policy_state.policy, now);
        // A zone that is only kept for its bucket has vanished already, until that is full.
        let is_news =
            |key: &ZoneKey| self.zones.get(key).is_some_and(|zone| !zone.is_retired() || zone.is_spent(now.cluster));
        transition.vanished.retain(is_news);
        transition
    }
}
