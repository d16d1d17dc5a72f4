//! Metrics of zones, under Kubernetes' names where it has one.

use std::fmt;

use muster_lifecycle::zone::ZoneState;
use prometheus_client::encoding::DescriptorEncoder;

use super::{counters, gauges};

/// Zones that get series of their own. A label that any node may set must not make a scrape arbitrarily large.
pub const ZONES_LIMIT: usize = 1000;
/// No zone can have this name: all but the default one are written with a slash.
const OTHER: &str = "other";
const STATES: [ZoneState; 4] =
    [ZoneState::Initial, ZoneState::Normal, ZoneState::PartialDisruption, ZoneState::FullDisruption];

/// One zone at this moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ZoneFigures {
    /// As a `ZoneKey` prints: `region/zone`, or `default`.
    pub zone: String,
    pub size: u64,
    pub ready: u64,
    /// As a `ZoneState` prints.
    pub state: &'static str,
    /// Evictions per second that the zone's state allows.
    pub rate_per_second: f64,
    /// Nodes that wait for their eviction.
    pub queue: u64,
    /// Evictions since the zone exists; replicated, so it survives a change of leader.
    pub evictions: u64,
}

// === impl ZoneFigures ===

impl ZoneFigures {
    /// A zone without nodes counts as healthy.
    fn health(&self) -> f64 {
        if self.size == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.size as f64 }
    }

    fn unhealthy(&self) -> u64 {
        self.size.saturating_sub(self.ready)
    }

    fn add(self, other: &Self) -> Self {
        Self {
            size: self.size + other.size,
            ready: self.ready + other.ready,
            rate_per_second: self.rate_per_second + other.rate_per_second,
            queue: self.queue + other.queue,
            evictions: self.evictions + other.evictions,
            ..self
        }
    }
}

/// The first zones by name, and the sum of all others. The other zones share no state, so their sum has none.
pub(super) fn within_limit(mut zones: Vec<ZoneFigures>) -> Vec<ZoneFigures> {
    zones.sort_by(|a, b| a.zone.cmp(&b.zone));
    let rest = zones.split_off(zones.len().min(ZONES_LIMIT));
    if rest.is_empty() {
        return zones;
    }
    let none =
        ZoneFigures { zone: OTHER.into(), size: 0, ready: 0, state: "", rate_per_second: 0.0, queue: 0, evictions: 0 };
    zones.push(rest.iter().fold(none, ZoneFigures::add));
    zones
}

pub(super) fn encode(zones: &[ZoneFigures], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let health = ("node_collector_zone_health", "Gauge measuring percentage of healthy nodes per zone.");
    gauges(encoder, health, per_zone(zones, ZoneFigures::health))?;
    let size = ("node_collector_zone_size", "Gauge measuring number of registered Nodes per zones.");
    gauges(encoder, size, per_zone(zones, |zone| zone.size as f64))?;
    let unhealthy = ("node_collector_unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones.");
    gauges(encoder, unhealthy, per_zone(zones, |zone| zone.unhealthy() as f64))?;
    let evictions = ("node_collector_evictions", "Number of Node evictions that happened, per zone.");
    counters(encoder, evictions, per_zone(zones, |zone| zone.evictions as f64))?;
    let queue = ("muster_eviction_queue_length", "Nodes that wait for their eviction.");
    gauges(encoder, queue, per_zone(zones, |zone| zone.queue as f64))?;
    let rate = ("muster_zone_eviction_rate", "Evictions per second that the zone's state allows.");
    gauges(encoder, rate, per_zone(zones, |zone| zone.rate_per_second))?;
    let state = ("muster_zone_state", "1 for the state the zone is in, 0 for the others.");
    gauges(encoder, state, zones.iter().filter(|zone| zone.zone != OTHER).flat_map(states))
}

fn per_zone(
    zones: &[ZoneFigures],
    value: impl Fn(&ZoneFigures) -> f64,
) -> impl Iterator<Item = ([(&'static str, &str); 1], f64)> {
    zones.iter().map(move |zone| ([("zone", zone.zone.as_str())], value(zone)))
}

fn states(zone: &ZoneFigures) -> impl Iterator<Item = ([(&'static str, &str); 2], f64)> {
    STATES.into_iter().map(move |state| {
        let is_in_it = f64::from(u8::from(zone.state == state.as_str()));
        ([("zone", zone.zone.as_str()), ("state", state.as_str())], is_in_it)
    })
}
