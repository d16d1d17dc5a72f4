//! Zones: how much of each is lost, and how fast its lost nodes may be evicted (Z-1 to Z-10).
//!
//! Many nodes lost at once are rarely many broken machines: more often it is their network, or us. So a zone that
//! loses a large part of its nodes evicts slowly or not at all, and when every zone is dark we suspect ourselves,
//! stop, and take back what we began.
//!
//! The map as a whole moves from one state to the next in [`Zones::advance`]. Rates are worked out anew each time
//! and compared with those in force, so that a zone that grows or a setting that changes takes effect at once.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::object::node::ConditionStatus;
use crate::object::policy::{Fraction, Policy, Rate, SizeScope};
use crate::value::meta::Pairs;
use crate::value::text::Text;
use crate::value::time::ClusterTime;

/// A node with this label, whatever its value, does not count when its zone is judged (Z-4).
pub const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// The older label and the stable one that it overrides.
const REGION_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];

/// What the zone of unlabelled nodes is called. No other zone is: their names have a slash.
const DEFAULT_ZONE: &str = "default";

/// Up to this many lost nodes are not a disruption, whatever their share.
pub const LOST_NODES_TOLERATED: u64 = 2;

/// Where a node stands. Both parts are empty for nodes that do not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ZoneKey {
    pub region: Text,
    pub zone: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a zone: write region/zone, or {DEFAULT_ZONE} for nodes without topology labels")]
pub struct ZoneKeyError {
    pub text: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ZoneState {
    /// Not judged yet.
    Initial,
    Normal,
    PartialDisruption,
    FullDisruption,
}

/// How fast a zone may lose nodes to eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Primary,
    /// Partially disrupted; `size` is what was compared with the threshold, and is above it.
    Secondary {
        size: u64,
    },
    /// Partially disrupted, and too small for the secondary rate.
    Halted {
        size: u64,
    },
}

/// How the evaluation of one node went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// Its Ready condition, if it has one.
    Known(Option<ConditionStatus>),
    /// It could not be evaluated, so it counts as what it was last known to be. Upstream leaves it out, and a
    /// failing evaluator makes a zone look smaller and worse than it is.
    Failed { last_known: Option<ConditionStatus> },
}

/// The nodes of one zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub ready: u32,
    pub not_ready: u32,
    /// Nodes with the exclusion label: they keep the zone in being, and say nothing about its state.
    pub excluded: u32,
}

/// What is remembered of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Zone {
    pub state: ZoneState,
    pub since: ClusterTime,
    pub rate: Rate,
}

/// What is remembered of all zones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Zones {
    pub zones: BTreeMap<ZoneKey, Zone>,
    /// Every zone is fully disrupted. Kept apart from the zones' states, because those of zones that have just
    /// appeared or vanished say nothing about what we did before (Z-10).
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
    /// All zones went dark: lift the lifecycle NoExecute taints of every node, which cancels the evictions that are
    /// under way, and empty every queue. All rates are zero.
    Enter,
    /// Somebody is there again: whatever kept us from hearing anybody may have only just ended, so every node's
    /// grace starts at this moment.
    Leave { grace_from: ClusterTime },
}

// === impl ZoneKey ===

impl ZoneKey {
    /// Z-1: the older label wins if it is there at all, even when empty.
    pub fn from_labels(labels: &Pairs) -> Self {
        let value = |keys: [&str; 2]| keys.into_iter().find_map(|key| labels.get(key)).cloned().unwrap_or_default();
        Self { region: value(REGION_LABELS), zone: value(ZONE_LABELS) }
    }

    pub fn is_default(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty()
    }
}

impl fmt::Display for ZoneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() { f.pad(DEFAULT_ZONE) } else { f.pad(&format!("{}/{}", self.region, self.zone)) }
    }
}

impl FromStr for ZoneKey {
    type Err = ZoneKeyError;

    fn from_str(text: &str) -> Result<Self, ZoneKeyError> {
        match text.split_once('/') {
            _ if text == DEFAULT_ZONE => Ok(Self::default()),
            Some((region, zone)) if text != "/" && !zone.contains('/') => {
                Ok(Self { region: Text::from(region), zone: Text::from(zone) })
            }
            Some(_) | None => Err(ZoneKeyError { text: Text::clipped(text, 128) }),
        }
    }
}

// === impl Census ===

impl Census {
    pub fn count(&mut self, labels: &Pairs, evaluation: Evaluation) {
        let (Evaluation::Known(ready) | Evaluation::Failed { last_known: ready }) = evaluation;
        let group = if labels.contains_key(EXCLUDE_DISRUPTION_LABEL) {
            &mut self.excluded
        } else if ready == Some(ConditionStatus::True) {
            &mut self.ready
        } else {
            &mut self.not_ready
        };
        *group = group.saturating_add(1);
    }

    /// Takes back what [`count`](Self::count) did for the same node.
    pub fn discount(&mut self, labels: &Pairs, evaluation: Evaluation) {
        let mut one = Self::default();
        one.count(labels, evaluation);
        self.ready = self.ready.saturating_sub(one.ready);
        self.not_ready = self.not_ready.saturating_sub(one.not_ready);
        self.excluded = self.excluded.saturating_sub(one.excluded);
    }

    /// How many nodes count.
    pub fn size(&self) -> u64 {
        u64::from(self.ready) + u64::from(self.not_ready)
    }

    /// Z-3. A zone in which nobody counts gives no sign of disruption.
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

    /// What it would be if so many of those who are ready were not.
    pub fn after_losing(self, lost: u32) -> Self {
        let lost = lost.min(self.ready);
        Self { ready: self.ready - lost, not_ready: self.not_ready.saturating_add(lost), ..self }
    }

    /// Not even nodes that do not count are there.
    pub fn is_deserted(&self) -> bool {
        self.size() == 0 && self.excluded == 0
    }
}

// === impl ZoneState ===

impl ZoneState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "Initial",
            Self::Normal => "Normal",
            Self::PartialDisruption => "PartialDisruption",
            Self::FullDisruption => "FullDisruption",
        }
    }

    /// Z-5: the pace while not all zones are dark. `zone` and `cluster` are the numbers of nodes that count there.
    ///
    /// A zone that is dark while others are not is evacuated at the full rate: its machines are gone and there is
    /// somewhere to go. A zone that is half there may be half there tomorrow.
    pub fn pace(self, zone: u64, cluster: u64, policy: &Policy) -> Pace {
        let size = match policy.large_cluster_size_scope {
            SizeScope::Zone => zone,
            SizeScope::Cluster => cluster,
        };
        match self {
            Self::Initial | Self::Normal | Self::FullDisruption => Pace::Primary,
            Self::PartialDisruption if size > u64::from(policy.large_cluster_size_threshold) => {
                Pace::Secondary { size }
            }
            Self::PartialDisruption => Pace::Halted { size },
        }
    }

    pub fn eviction_rate(self, zone: u64, cluster: u64, policy: &Policy) -> Rate {
        self.pace(zone, cluster, policy).rate(policy)
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

impl fmt::Display for ZoneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Zones ===

impl Zones {
    /// Z-6: where all zones go from here, given who is in them now.
    pub fn advance(&self, census: &BTreeMap<ZoneKey, Census>, policy: &Policy, now: ClusterTime) -> Transition {
        let all_disrupted = self.is_all_disrupted(census, policy.unhealthy_zone_threshold);
        let cluster = census.values().map(Census::size).sum();
        let mut step = Transition {
            next: Self { zones: BTreeMap::new(), all_disrupted },
            states: Vec::new(),
            rates: Vec::new(),
            vanished: self.vanished(census),
            full_disruption: self.full_disruption_change(all_disrupted, now),
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

    /// Zones in which nobody counts have no say. If nobody counts anywhere, there is no ground for a change.
    fn is_all_disrupted(&self, census: &BTreeMap<ZoneKey, Census>, threshold: Fraction) -> bool {
        let mut states = census.values().filter(|census| census.size() > 0).map(|census| census.state(threshold));
        match states.next() {
            None => self.all_disrupted,
            Some(first) => std::iter::once(first).chain(states).all(|state| state == ZoneState::FullDisruption),
        }
    }

    /// Z-8: all of them at once.
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
    /// Whether anything is left to be said or done.
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
