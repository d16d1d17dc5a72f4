//! Oversight of nodes and zones: what a leader finds to do, read off the state. `apply` decides only what is legal.
//!
//! The driver (the actors, a simulation) asks and proposes. Nothing is remembered here, so a new leader that asks
//! gets the same answers.

use crate::command::LIFTS_MAX;
use crate::command::LeaderOperation;
use crate::judge::health::{Evidence, Excuse};
use crate::object::node::{Incarnation, Node};
use crate::object::policy::Policy;
use crate::object::zone::{ZoneKey, ZoneState};
use crate::state::State;
use crate::store::census::Census;
use crate::value::text::Text;
use crate::value::time::Period;
use crate::value::time::{ClusterTime, Stamp};

/// How many nodes of a queue are looked at to find one that is not spared, so that a look stays short for any queue.
pub const PASSED_OVER_MAX: usize = 4096;

/// The next step for the queue of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionStep {
    Evict {
        name: Text,
        incarnation: Incarnation,
    },
    /// A node waits, and may be evicted from this moment on if nothing changes.
    WaitUntil(ClusterTime),
    /// No node waits, or none may be evicted at the rate in force.
    Idle,
}

/// When a leader sweeps next. Counted in cluster time, so that it does not depend on when a leader took over.
pub fn next_round(policy: &Policy, now: ClusterTime) -> ClusterTime {
    policy.sweep_period().next_multiple_after(now)
}

/// When the zones are assessed next, even if no eviction asks for it before.
pub fn next_assessment(policy: &Policy, now: ClusterTime) -> ClusterTime {
    policy.node_monitor_period.next_multiple_after(now)
}

/// Whether [`LeaderOperation::AssessZones`] would change anything.
pub fn assessment_is_due(state: &State, now: ClusterTime) -> bool {
    // Whether something changes does not depend on the date at which it does.
    !state.zone_transition(Stamp { cluster: now, ..Stamp::default() }).is_quiet()
}

/// Whether the zone's state would change if `found_silent` ready nodes of each zone were lost: those whose verdicts are
/// not in the log yet. Then no token is spent: the first of many evictions would go ahead before the zone counts as
/// disrupted. The same holds if all zones together would count as fully disrupted, and none would evict.
pub fn is_about_to_change(state: &State, zone: &ZoneKey, found_silent: &dyn Fn(&ZoneKey) -> u32) -> bool {
    let (census, threshold) = (state.census_of(zone), state.policy().unhealthy_zone_threshold);
    let after = |zone: &ZoneKey, census: &Census| census.after_losing(found_silent(zone)).state(threshold);
    after(zone, &census) != census.state(threshold)
        || (!is_all_full(state, |_, census| census.state(threshold)) && is_all_full(state, after))
}

/// Whether every zone in which nodes count is fully disrupted, given the state of each.
fn is_all_full(state: &State, of: impl Fn(&ZoneKey, &Census) -> ZoneState) -> bool {
    let mut counting = state.census().filter(|(_, census)| census.size() > 0);
    counting.all(|(zone, census)| of(zone, census) == ZoneState::FullDisruption)
}

pub fn eviction_step(state: &State, zone: &ZoneKey, now: ClusterTime) -> EvictionStep {
    eviction_step_sparing(state, zone, now, |_| false)
}

/// As [`eviction_step`], but a node that `is_spared` now is passed over for the next in the queue. If all of the
/// first [`PASSED_OVER_MAX`] are spared, no node is evicted until that changes.
pub fn eviction_step_sparing(
    state: &State,
    zone: &ZoneKey,
    now: ClusterTime,
    mut is_spared: impl FnMut(&Node) -> bool,
) -> EvictionStep {
    let Some(queue) = state.queue(zone).filter(|queue| !queue.is_empty()) else { return EvictionStep::Idle };
    match turn_at(state, zone, 0, now) {
        None => return EvictionStep::Idle,
        Some(at) if at > now => return EvictionStep::WaitUntil(at),
        Some(_) => {}
    }
    let mut waiting = queue.iter().take(PASSED_OVER_MAX).filter_map(|(name, _)| state.node(name));
    waiting.find(|node| !is_spared(node)).map_or(EvictionStep::Idle, |node| EvictionStep::Evict {
        name: node.meta.name.clone(),
        incarnation: node.incarnation,
    })
}

/// When the node at this position of the zone's queue (0 is the head) is evicted if nothing changes. `None` if it is
/// not: all zones are fully disrupted, the zone was never assessed, or its rate is zero.
pub fn turn_at(state: &State, zone: &ZoneKey, position: usize, now: ClusterTime) -> Option<ClusterTime> {
    let record = state.zones().get(zone).filter(|_| !state.policy_state().all_disrupted)?;
    let earliest = state.policy_state().spared_until().map_or(now, |until| until.max(now));
    record.bucket.eta(position, earliest)
}

/// Takes back the next evictions while all zones are fully disrupted, if there are any to take back.
pub fn lift(state: &State) -> Option<LeaderOperation> {
    let names: Vec<Text> = state.absent().iter().take(LIFTS_MAX).cloned().collect();
    (state.policy_state().all_disrupted && !names.is_empty()).then_some(LeaderOperation::LiftEvictions { names })
}

/// The evidence on which a node is judged. A reprieve excuses it as blindness does.
pub fn evidence<'a>(
    state: &State,
    node: &'a Node,
    heard: Option<ClusterTime>,
    excuse: Option<Excuse>,
    now: Stamp,
) -> Evidence<'a> {
    let spared = |blind_until| Excuse { blind_until, reattach_window: Period(0) };
    let reprieve = state.policy_state().spared_until().map(spared);
    let excuse = excuse.into_iter().chain(reprieve).max_by_key(|excuse| excuse.end());
    Evidence { conditions: &node.status.conditions, created: node.meta.created, heard, excuse, now }
}
