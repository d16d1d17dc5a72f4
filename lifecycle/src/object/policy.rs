//! Policy: the settings that decide when a node counts as lost and how fast lost nodes are evicted.
//!
//! They are replicated and compared, so there are no floats in them: durations are milliseconds, rates are millionths
//! of an event per second, and fractions are parts per million. People read and write the usual forms (`40s`, `0.1`).
//! A value that cannot be held exactly is refused rather than rounded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::value::decimal::{MILLION, decimal, millionths};
use crate::value::invalid::Invalid;
pub use crate::value::setting::{
    LARGE_CLUSTER_SIZE_SCOPE, LARGE_CLUSTER_SIZE_THRESHOLD, NODE_EVICTION_RATE, NODE_MONITOR_GRACE_PERIOD,
    NODE_MONITOR_PERIOD, NODE_STARTUP_GRACE_PERIOD, POD_EVICTION_TIMEOUT, SECONDARY_NODE_EVICTION_RATE,
    UNHEALTHY_ZONE_THRESHOLD, UPGRADE_FINALIZE_AFTER,
};
use crate::value::text::Text;
use crate::value::time::{Period, PeriodError};
use crate::value::violation::SettingViolation;

/// Events per second, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rate(pub u64);

/// A share of a whole, in parts per million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fraction(pub u64);

/// What the size threshold for the secondary eviction rate is compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SizeScope {
    /// The size of the disrupted zone, as upstream's code does.
    #[default]
    Zone,
    /// The size of the whole cluster, as upstream's documents say.
    Cluster,
}

/// When an upgrade is finalised, that is, when its level is put into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpgradeFinalization {
    /// So long after the last replica announced the level.
    After(Period),
    /// When an operator says so.
    Manual,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// How often the zones are assessed.
    pub node_monitor_period: Period,
    /// The silence allowed for a node that has a Ready condition.
    pub node_monitor_grace_period: Period,
    /// The silence allowed for a node that has none yet.
    pub node_startup_grace_period: Period,
    /// How long pods without a toleration of their own stay on a lost node.
    pub pod_eviction_timeout: Period,
    /// Nodes per second and zone that are tainted for eviction.
    pub node_eviction_rate: Rate,
    /// The same in a partially disrupted zone, if there are enough nodes.
    pub secondary_node_eviction_rate: Rate,
    /// From which share of nodes that are not ready a zone is partially disrupted.
    pub unhealthy_zone_threshold: Fraction,
    /// Above how many nodes the secondary rate applies; with fewer, a disrupted zone evicts nothing.
    pub large_cluster_size_threshold: u32,
    pub large_cluster_size_scope: SizeScope,
    /// When the level that all replicas speak is put into force.
    pub upgrade_finalize_after: UpgradeFinalization,
}

const BEAT_INTERVAL_MAX: Period = Period::from_secs(10);
const SWEEP_PERIOD_MIN: Period = Period(100);
const SWEEP_PERIOD_MAX: Period = Period(500);

/// Below this the beats alone, four to a grace period, would be a load.
const MONITOR_PERIOD_MIN: Period = Period(100);

/// Replicas tell each other four times a second which nodes they heard; several of these messages must fit.
const GRACE_MIN: Period = Period::from_secs(1);

/// Longer than any silence or toleration that makes sense, and far from where sums could overflow.
const PERIOD_MAX: Period = Period::from_secs(366 * 24 * 3600);

/// Cluster time counts milliseconds and a bucket holds one token, so no higher rate could be kept.
const RATE_MAX: Rate = Rate(1000 * MILLION);

/// How much of an offending value a message quotes.
const QUOTED_MAX: usize = 64;

// === impl Policy ===

impl Default for Policy {
    fn default() -> Self {
        Self {
            node_monitor_period: Period::from_secs(5),
            node_monitor_grace_period: Period::from_secs(40),
            node_startup_grace_period: Period::from_secs(60),
            pod_eviction_timeout: Period::from_secs(300),
            node_eviction_rate: Rate(100_000),
            secondary_node_eviction_rate: Rate(10_000),
            unhealthy_zone_threshold: Fraction(550_000),
            large_cluster_size_threshold: 50,
            large_cluster_size_scope: SizeScope::Zone,
            upgrade_finalize_after: UpgradeFinalization::default(),
        }
    }
}

impl Policy {
    /// How often agents are told to beat: several times per grace, so that one lost beat costs nothing.
    pub fn beat_interval(&self) -> Period {
        BEAT_INTERVAL_MAX.min(Period(self.shortest_grace().0 / 4))
    }

    /// How often a leader looks for nodes that fell silent: often enough that the look adds little to the grace.
    pub fn sweep_period(&self) -> Period {
        Period(self.shortest_grace().0 / 8).clamp(SWEEP_PERIOD_MIN, SWEEP_PERIOD_MAX)
    }

    /// The grace within which every node has to be heard, ready or not.
    pub fn shortest_grace(&self) -> Period {
        self.node_monitor_grace_period.min(self.node_startup_grace_period)
    }

    /// Whether the settings make sense together; if not, which one breaks which rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.check_lengths()?;
        self.check_period_against_graces()?;
        check_rate(NODE_EVICTION_RATE, self.node_eviction_rate)?;
        check_rate(SECONDARY_NODE_EVICTION_RATE, self.secondary_node_eviction_rate)?;
        let threshold = self.unhealthy_zone_threshold;
        require(threshold.0 <= MILLION, UNHEALTHY_ZONE_THRESHOLD, || SettingViolation::NoShare {
            fraction: threshold.0,
        })
    }

    /// Every setting with its value in the form people write.
    pub fn settings(&self) -> [(&'static str, String); 10] {
        [
            (NODE_MONITOR_PERIOD, self.node_monitor_period.to_string()),
            (NODE_MONITOR_GRACE_PERIOD, self.node_monitor_grace_period.to_string()),
            (NODE_STARTUP_GRACE_PERIOD, self.node_startup_grace_period.to_string()),
            (POD_EVICTION_TIMEOUT, self.pod_eviction_timeout.to_string()),
            (NODE_EVICTION_RATE, self.node_eviction_rate.to_string()),
            (SECONDARY_NODE_EVICTION_RATE, self.secondary_node_eviction_rate.to_string()),
            (UNHEALTHY_ZONE_THRESHOLD, self.unhealthy_zone_threshold.to_string()),
            (LARGE_CLUSTER_SIZE_THRESHOLD, self.large_cluster_size_threshold.to_string()),
            (LARGE_CLUSTER_SIZE_SCOPE, self.large_cluster_size_scope.to_string()),
            (UPGRADE_FINALIZE_AFTER, self.upgrade_finalize_after.to_string()),
        ]
    }

    /// Changes one setting by its name. Settings that depend on each other may change one after the other, so the
    /// whole is left to [`validate`](Self::validate).
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        let wrong = |rule: SettingViolation| Invalid::new(name, rule);
        let wrong_period = |error: PeriodError| Invalid::new(name, SettingViolation::from(error));
        match name {
            NODE_MONITOR_PERIOD => self.node_monitor_period = value.parse().map_err(wrong_period)?,
            NODE_MONITOR_GRACE_PERIOD => self.node_monitor_grace_period = value.parse().map_err(wrong_period)?,
            NODE_STARTUP_GRACE_PERIOD => self.node_startup_grace_period = value.parse().map_err(wrong_period)?,
            POD_EVICTION_TIMEOUT => self.pod_eviction_timeout = value.parse().map_err(wrong_period)?,
            NODE_EVICTION_RATE => self.node_eviction_rate = value.parse().map_err(wrong)?,
            SECONDARY_NODE_EVICTION_RATE => self.secondary_node_eviction_rate = value.parse().map_err(wrong)?,
            UNHEALTHY_ZONE_THRESHOLD => self.unhealthy_zone_threshold = value.parse().map_err(wrong)?,
            LARGE_CLUSTER_SIZE_THRESHOLD => {
                let size = value.parse().map_err(|_| wrong(SettingViolation::NotSize { text: quoted(value) }))?;
                self.large_cluster_size_threshold = size;
            }
            LARGE_CLUSTER_SIZE_SCOPE => self.large_cluster_size_scope = value.parse().map_err(wrong)?,
            UPGRADE_FINALIZE_AFTER => self.upgrade_finalize_after = value.parse().map_err(wrong)?,
            _ => return Err(Invalid::new(quoted(name), SettingViolation::Unknown)),
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<(), Invalid> {
        let periods = [
            (NODE_MONITOR_PERIOD, self.node_monitor_period),
            (NODE_MONITOR_GRACE_PERIOD, self.node_monitor_grace_period),
            (NODE_STARTUP_GRACE_PERIOD, self.node_startup_grace_period),
            (POD_EVICTION_TIMEOUT, self.pod_eviction_timeout),
        ];
        let finalization = self.upgrade_finalize_after.delay().map(|delay| (UPGRADE_FINALIZE_AFTER, delay));
        for (field, period) in periods.into_iter().chain(finalization) {
            require(period <= PERIOD_MAX, field, || SettingViolation::TooLong { period, most: PERIOD_MAX })?;
        }
        let (period, timeout) = (self.node_monitor_period, self.pod_eviction_timeout);
        require(period >= MONITOR_PERIOD_MIN, NODE_MONITOR_PERIOD, || SettingViolation::TooShort {
            period,
            least: MONITOR_PERIOD_MIN,
        })?;
        require(timeout.0.is_multiple_of(1000), POD_EVICTION_TIMEOUT, || SettingViolation::NotWholeSeconds {
            period: timeout,
        })
    }

    fn check_period_against_graces(&self) -> Result<(), Invalid> {
        let graces = [
            (NODE_MONITOR_GRACE_PERIOD, self.node_monitor_grace_period),
            (NODE_STARTUP_GRACE_PERIOD, self.node_startup_grace_period),
        ];
        let period = self.node_monitor_period;
        graces.into_iter().try_for_each(|(name, grace)| {
            require(grace >= GRACE_MIN, name, || SettingViolation::GraceTooShort { grace, least: GRACE_MIN })
        })?;
        graces.into_iter().try_for_each(|(name, grace)| {
            require(period <= grace, NODE_MONITOR_PERIOD, || SettingViolation::AboveGrace {
                period,
                setting: Text::from(name),
                grace,
            })
        })
    }
}

fn check_rate(field: &'static str, rate: Rate) -> Result<(), Invalid> {
    require(rate <= RATE_MAX, field, || SettingViolation::TooFast { rate: rate.0, most: RATE_MAX.0 })
}

fn require(holds: bool, field: &'static str, rule: impl FnOnce() -> SettingViolation) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid::new(field, rule())) }
}

fn quoted(text: &str) -> Text {
    Text::clipped(text, QUOTED_MAX)
}

// === impl Rate ===

impl Rate {
    pub const NEVER: Self = Self(0);
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0))
    }
}

impl FromStr for Rate {
    type Err = SettingViolation;

    fn from_str(text: &str) -> Result<Self, SettingViolation> {
        millionths(text).map(Self).ok_or_else(|| SettingViolation::NotRate { text: quoted(text) })
    }
}

// === impl Fraction ===

impl Fraction {
    /// Whether `part` of `whole` is at least this much. Exact, where upstream compares 32-bit floats.
    pub fn is_reached_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(MILLION) >= u128::from(self.0) * u128::from(whole)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0))
    }
}

impl FromStr for Fraction {
    type Err = SettingViolation;

    fn from_str(text: &str) -> Result<Self, SettingViolation> {
        let parsed = millionths(text).filter(|parts| *parts <= MILLION);
        parsed.map(Self).ok_or_else(|| SettingViolation::NotFraction { text: quoted(text) })
    }
}

// === impl SizeScope ===

impl SizeScope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for SizeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SizeScope {
    type Err = SettingViolation;

    fn from_str(text: &str) -> Result<Self, SettingViolation> {
        [Self::Zone, Self::Cluster]
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| SettingViolation::NotScope { text: quoted(text) })
    }
}

// === impl UpgradeFinalization ===

const MANUAL: &str = "manual";

impl UpgradeFinalization {
    /// `None` if it waits for an operator.
    pub fn delay(self) -> Option<Period> {
        match self {
            Self::After(delay) => Some(delay),
            Self::Manual => None,
        }
    }
}

impl Default for UpgradeFinalization {
    fn default() -> Self {
        Self::After(Period::from_secs(600))
    }
}

impl fmt::Display for UpgradeFinalization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(delay) => delay.fmt(f),
            Self::Manual => f.pad(MANUAL),
        }
    }
}

impl FromStr for UpgradeFinalization {
    type Err = SettingViolation;

    fn from_str(text: &str) -> Result<Self, SettingViolation> {
        if text == MANUAL {
            return Ok(Self::Manual);
        }
        text.parse().map(Self::After).map_err(|_| SettingViolation::NotFinalization { text: quoted(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::setting;

    /// The refusal of an unknown setting lists them by this.
    #[test]
    fn every_setting_is_named() {
        assert_eq!(Policy::default().settings().map(|(name, _)| name), setting::ALL);
    }
}
