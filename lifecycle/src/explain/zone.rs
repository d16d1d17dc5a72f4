//! Explanation of one zone: how much of it is lost, how fast it evicts and why, and which nodes wait.

use crate::explain::wording::{disruption, pace, per_second, zone_name};
use crate::explain::{
    ExcuseNote, ExplainedTime, Fact, Prospect, Summary, WAITING_SHOWN_MAX, Waiting, When, ZoneExplanation, in_order,
    reprieve, shown_excuses, spared_because,
};
use crate::judge::disruption::Pace;
use crate::judge::oversight;
use crate::object::policy::{NODE_EVICTION_RATE, Rate, SECONDARY_NODE_EVICTION_RATE};
use crate::object::zone::ZoneKey;
use crate::object::zone::ZoneRecord;
use crate::state::State;
use crate::store::census::Census;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp};

/// `None` if no node is or was there. `excuses` are only those that concern every node.
pub fn zone(state: &State, zone: &ZoneKey, excuses: &[ExcuseNote], now: Stamp) -> Option<ZoneExplanation> {
    let (record, census) = (state.zones().get(zone), state.census_of(zone));
    if record.is_none() && census.is_deserted() {
        return None;
    }
    let prospects = prospects(state, zone, now);
    Some(ZoneExplanation {
        zone: zone.to_string(),
        now: ExplainedTime::from(now),
        headline: headline(state, record.map(AsRef::as_ref), &census),
        facts: state_and_rate(state, zone, now).into_iter().chain(upkeep(state, zone, now)).collect(),
        excuses: reprieve(state.policy_state(), now).into_iter().chain(shown_excuses(excuses, now)).collect(),
        outlook: prospects.first().cloned(),
        forecast: in_order(prospects),
        queue_length: state.queue(zone).map_or(0, |queue| queue.len()),
        waiting: waiting(state, zone, now),
    })
}

fn headline(state: &State, record: Option<&ZoneRecord>, census: &Census) -> Summary {
    let aside = disruption(census, state.policy().unhealthy_zone_threshold);
    Summary {
        text: record.map_or("not assessed yet".to_owned(), |record| record.zone.state.to_string()),
        since: record.map(|record| ExplainedTime::from(record.zone.since)),
        aside: Some(aside),
    }
}

// === what is ===

/// The state and the rate in force, and why they are what they are.
pub(super) fn state_and_rate(state: &State, zone: &ZoneKey, now: Stamp) -> Vec<Fact> {
    let Some(record) = state.zones().get(zone) else {
        return vec![Fact::new("zone", format!("{} has not been assessed yet", zone_name(zone))).by("Z-2")];
    };
    let census = state.census_of(zone);
    let arithmetic = disruption(&census, state.policy().unhealthy_zone_threshold);
    let text = format!("{} is in {}: {arithmetic}", zone_name(zone), record.zone.state);
    let since = ExplainedTime::from(record.zone.since);
    vec![Fact::new("zone", text).by("Z-3").when(Some(since)), rate_fact(state, record, &census, now)]
}

fn rate_fact(state: &State, record: &ZoneRecord, census: &Census, now: Stamp) -> Fact {
    let rate = per_second(record.zone.rate);
    if state.policy_state().all_disrupted {
        return Fact::new("rate", format!("{rate}: all zones are fully disrupted")).by("Z-6");
    }
    let why = match is_outdated(state, record, now) {
        true => "as of the last assessment".to_owned(),
        false => why_rate(state, record, census),
    };
    Fact::new("rate", format!("{rate}: {why}")).by("Z-5")
}

fn why_rate(state: &State, record: &ZoneRecord, census: &Census) -> String {
    pace(record.zone.state, census, cluster_size(state), state.policy())
}

fn cluster_size(state: &State) -> u64 {
    state.census().map(|(_, census)| census.size()).sum()
}

/// Whether an assessment would change what is in force in this zone.
fn is_outdated(state: &State, record: &ZoneRecord, now: Stamp) -> bool {
    let next = state.zone_transition(now).next;
    next.zones.get(&record.key).is_none_or(|next| *next != record.zone)
}

/// Facts for a reader who looks at the zone and not at one of its nodes.
fn upkeep(state: &State, zone: &ZoneKey, now: Stamp) -> Vec<Fact> {
    let census = state.census_of(zone);
    let counts = format!("{} ready, {} not ready, {} excluded", census.ready, census.not_ready, census.excluded);
    let record = state.zones().get(zone);
    let evicted = record.map(|record| Fact::new("evictions", format!("{} so far", record.evictions)));
    [Fact::new("census", counts).by("Z-4"), queue_fact(state, zone, now)]
        .into_iter()
        .chain(record.map(|record| token_fact(record, now)))
        .chain(evicted)
        .collect()
}

fn queue_fact(state: &State, zone: &ZoneKey, now: Stamp) -> Fact {
    match state.queue(zone).and_then(|queue| queue.head().map(|head| (queue.len(), head))) {
        None => Fact::new("queue", "empty").by("Q-1"),
        Some((count, (name, since))) => {
            let text = if count == 1 { format!("{name} waits") } else { format!("{count} wait, {name} for longest") };
            Fact::new("queue", text).by("Q-1").when(Some(ExplainedTime::of(since, now)))
        }
    }
}

fn token_fact(record: &ZoneRecord, now: Stamp) -> Fact {
    match record.bucket.next_token_at(now.cluster) {
        None => Fact::new("token", "there will be none at this rate").by("Q-3"),
        Some(at) if at <= now.cluster => Fact::new("token", "there is one").by("Q-2"),
        Some(at) => Fact::new("token", "the next one comes").by("Q-2").when(Some(ExplainedTime::of(at, now))),
    }
}

fn waiting(state: &State, zone: &ZoneKey, now: Stamp) -> Vec<Waiting> {
    let queue = state.queue(zone).into_iter().flat_map(|queue| queue.iter()).take(WAITING_SHOWN_MAX);
    let shown = |(index, (name, since)): (usize, (&Text, ClusterTime))| Waiting {
        name: name.to_string(),
        position: index + 1,
        since: ExplainedTime::of(since, now),
        turn: When::of(oversight::turn_at(state, zone, index, now.cluster), now),
    };
    queue.enumerate().map(shown).collect()
}

// === what comes ===

/// The prospect that matters most comes first.
fn prospects(state: &State, zone: &ZoneKey, now: Stamp) -> Vec<Prospect> {
    let head = state.queue(zone).and_then(|queue| queue.head());
    let next = match head {
        None => Prospect::never("no node waits to be evicted", "Q-1"),
        Some((name, _)) => {
            let place = format!("{name} is next to be tainted for eviction");
            match oversight::turn_at(state, zone, 0, now.cluster) {
                Some(at) => turn(state, zone, place, at, now),
                None => no_turn(state, zone, &place, now),
            }
        }
    };
    [next].into_iter().chain(assessment(state, zone, now)).collect()
}

/// The next eviction, with its time.
pub(super) fn turn(state: &State, zone: &ZoneKey, place: String, at: ClusterTime, now: Stamp) -> Prospect {
    let rate = state.zones().get(zone).map_or(Rate::NEVER, |record| record.zone.rate);
    let paced = format!("{place}, at {}", per_second(rate));
    match spared_because(state.policy_state(), now) {
        Some(spared) => Prospect::about(at, now, format!("{paced}, {spared}"), "Z-6"),
        None => Prospect::about(at, now, paced, "Q-2"),
    }
}

/// Why no eviction is scheduled.
pub(super) fn no_turn(state: &State, zone: &ZoneKey, place: &str, now: Stamp) -> Prospect {
    if state.policy_state().all_disrupted {
        return Prospect::never(format!("{place}: all zones are fully disrupted, so no node is evicted"), "Z-6");
    }
    let Some(record) = state.zones().get(zone) else {
        return Prospect::never(format!("{place}, which does not move before the zone is assessed"), "Z-2");
    };
    let why = match is_outdated(state, record, now) {
        true => "as of the last assessment".to_owned(),
        false => why_halted(state, record, &state.census_of(zone)),
    };
    Prospect::never(format!("{place}: the rate is 0, {why}"), "Z-5")
}

fn why_halted(state: &State, record: &ZoneRecord, census: &Census) -> String {
    let arithmetic = disruption(census, state.policy().unhealthy_zone_threshold);
    match record.zone.state.pace(census.size(), cluster_size(state), state.policy()) {
        Pace::Primary => format!("as {NODE_EVICTION_RATE} says"),
        Pace::Secondary { .. } => format!("as {SECONDARY_NODE_EVICTION_RATE} says for a zone with {arithmetic}"),
        Pace::Halted { .. } => format!("because {arithmetic}, and {}", why_rate(state, record, census)),
    }
}

/// The next assessment of the zones, if it will change something here.
pub(super) fn assessment(state: &State, zone: &ZoneKey, now: Stamp) -> Option<Prospect> {
    let next = state.zone_transition(now).next.zones.get(zone).copied()?;
    let known = state.zones().get(zone).map(|record| record.zone);
    if known == Some(next) {
        return None;
    }
    let at = state.policy().node_monitor_period.after(now.cluster);
    let text = format!("{} is assessed: {}, {}", zone_name(zone), next.state, per_second(next.rate));
    Some(Prospect::about(at, now, text, "Z-6"))
}
