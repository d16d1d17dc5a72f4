//! What a leader finds to do, read off the state: the wise half of what `apply` finds legal.
//!
//! Whoever drives these (the actors, a simulation) asks and proposes; nothing is remembered here, so a new leader
//! that asks gets the same answers.

use crate::apply_lifecycle::LIFTS_MAX;
use crate::command::Operation;
use crate::health::{Evidence, Excuse};
use crate::node::{Incarnation, Node};
use crate::state::State;
use crate::text::Text;
use crate::time::{ClusterTime, Stamp};
use crate::zone::ZoneKey;

/// What is to be done about the queue of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionStep {
    Evict {
        name: Text,
        incarnation: Incarnation,
    },
    /// Somebody waits, and may be evicted from this moment on if nothing changes.
    WaitUntil(ClusterTime),
    /// Nobody waits, or nobody may be evicted at the rate in force.
    Idle,
}

/// Whether [`Operation::AssessZones`] would change anything.
pub fn assessment_is_due(state: &State, now: ClusterTime) -> bool {
    !state.zone_transition(now).is_quiet()
}

pub fn eviction_step(state: &State, zone: &ZoneKey, now: ClusterTime) -> EvictionStep {
    let waiting = state.queue(zone).and_then(|queue| queue.head()).and_then(|(name, _)| state.node(name));
    let Some(head) = waiting else { return EvictionStep::Idle };
    match turn_at(state, zone, 0, now) {
        None => EvictionStep::Idle,
        Some(at) if at > now => EvictionStep::WaitUntil(at),
        Some(_) => EvictionStep::Evict { name: head.meta.name.clone(), incarnation: head.incarnation },
    }
}

/// When the node at this position of the zone's queue (0 is the head) is evicted if nothing changes; `None` if it is
/// not, because all zones are dark, the zone was never assessed, or its rate is zero.
pub fn turn_at(state: &State, zone: &ZoneKey, position: usize, now: ClusterTime) -> Option<ClusterTime> {
    let record = state.zones().get(zone).filter(|_| !state.regime().all_dark)?;
    let spared = state.regime().spared_until().filter(|until| now <= *until);
    let earliest = spared.map_or(now, |until| ClusterTime(until.0.saturating_add(1)));
    record.bucket.eta(position, earliest)
}

/// Takes back the next evictions while all zones are dark, if there are any to take back.
pub fn lift(state: &State) -> Option<Operation> {
    let names: Vec<Text> = state.absent().iter().take(LIFTS_MAX).cloned().collect();
    (state.regime().all_dark && !names.is_empty()).then_some(Operation::LiftEvictions { names })
}

/// What a node is judged on. The end of a time in which all zones were dark excuses it like a blindness does.
pub fn evidence<'a>(
    state: &State,
    node: &'a Node,
    heard: Option<ClusterTime>,
    excuse: Option<Excuse>,
    now: Stamp,
) -> Evidence<'a> {
    let reprieve =
        state.regime().reprieve().map(|(blind_until, reattach_window)| Excuse { blind_until, reattach_window });
    let excuse = excuse.into_iter().chain(reprieve).max_by_key(|excuse| excuse.end());
    Evidence { conditions: &node.status.conditions, created: node.meta.created, heard, excuse, now }
}
