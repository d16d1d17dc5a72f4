//! Invariants: what is true of every state, whatever was applied to it.
//!
//! Tests and simulations call [`check_all`] after every batch. Each invariant has a name, so that a failure says
//! which one broke before it says how.

mod lifecycle;
pub mod runs;
mod trust;
mod work;

use std::collections::BTreeSet;

use thiserror::Error;

use crate::command::client::CLIENTS_MAX;
use crate::object::event::EVENTS_MAX;
use crate::object::node::Slot;
use crate::object::record::Stored;
use crate::object::record::{RECORD_BYTES_MAX, RecordKey};
use crate::object::slot::FreeSlot;
use crate::rule;
use crate::state::{NodeCounts, State, StateBuilder};
use crate::store::table::Table;
use crate::value::meta::ObjectMeta;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invariant \"{name}\" is broken: {detail}")]
pub struct BrokenInvariant {
    pub name: &'static str,
    pub detail: Text,
}

type Held = Result<(), String>;

/// The name and the check, which says why if the invariant does not hold.
pub type Invariant = (&'static str, fn(&State) -> Held);

pub const INVARIANTS: [Invariant; 23] = [
    ("slots are unique", slots_are_unique),
    ("names match keys", names_match_keys),
    ("every node is valid", every_node_is_valid),
    ("revision bounds every object", revision_bounds_every_object),
    ("incarnations are unique", incarnations_are_unique),
    ("event log bounded", event_log_bounded),
    ("client table bounded", client_table_bounded),
    ("counts match", counts_match),
    ("digest equals recomputation", digest_equals_recomputation),
    ("records round-trip", records_round_trip),
    ("zones, queues and absent nodes equal recomputation", lifecycle::derived_equals_recomputation),
    ("NE-7 one lifecycle NoExecute taint at most", lifecycle::one_no_execute_taint),
    ("TC-2 managed NoSchedule taints are those wanted", lifecycle::no_schedule_as_wanted),
    ("LB-1 older labels say what the stable ones say", lifecycle::labels_are_mirrored),
    ("buckets run at their zone's rate", lifecycle::buckets_follow_zones),
    ("Z-6 nothing is evicted while all zones are fully disrupted", lifecycle::nothing_moves_in_the_dark),
    ("aggregators are valid and bounded", lifecycle::aggregators_are_valid),
    ("tokens and credentials are valid and bounded", trust::tokens_and_credentials_are_valid),
    ("expired credentials equal recomputation", trust::expired_credentials_equal_recomputation),
    ("pods and workloads equal recomputation", work::pods_equal_recomputation),
    ("addresses equal recomputation", work::addresses_equal_recomputation),
    ("I-07 no address is held twice", work::no_address_is_held_twice),
    ("every pod is valid and has a home", work::every_pod_is_valid),
];

pub fn check_all(state: &State) -> Result<(), BrokenInvariant> {
    INVARIANTS.iter().try_for_each(|(name, holds)| {
        holds(state).map_err(|detail| BrokenInvariant { name, detail: Text::from(detail) })
    })
}

/// No two nodes share a slot, no slot is both held and free, and all lie below the limit.
fn slots_are_unique(state: &State) -> Held {
    let mut seen = BTreeSet::new();
    let held = state.nodes().iter().map(|node| node.slot);
    let free = state.free_slots().iter().map(|free| FreeSlot::taken(**free));
    for Slot { index, generation } in held.chain(free) {
        ensure(seen.insert(index), || format!("slot {index} is there twice"))?;
        ensure(index < state.slot_limit(), || format!("slot {index} is not below {}", state.slot_limit()))?;
        ensure(generation > 0, || format!("slot {index} has generation 0"))?;
    }
    Ok(())
}

fn names_match_keys(state: &State) -> Held {
    fn keys_match<T: Stored>(table: &Table<T>) -> Held {
        table.entries().try_for_each(|(key, row)| {
            let own = row.key();
            ensure(*key == own, || format!("{own:?} is stored under {key:?}"))
        })
    }
    keys_match(state.nodes())?;
    keys_match(state.events())?;
    keys_match(state.replicas())?;
    keys_match(state.clients())?;
    keys_match(state.free_slots())?;
    keys_match(state.zones())?;
    keys_match(state.aggregators())?;
    keys_match(state.pods())?;
    keys_match(state.workloads())?;
    keys_match(state.join_tokens())?;
    keys_match(state.credentials())?;
    keys_match(state.resting())
}

fn every_node_is_valid(state: &State) -> Held {
    state.nodes().iter().try_for_each(|node| {
        rule::node::node(node).map_err(|invalid| format!("node {}: {invalid}", node.meta.name))?;
        rule::node::size(node, RECORD_BYTES_MAX).map_err(|rejection| rejection.to_string())?;
        let is_gone = node.meta.deleted.is_some() && node.meta.finalizers.is_empty();
        ensure(!is_gone, || format!("node {} is deleted, has no finalizers and is still there", node.meta.name))
    })
}

/// No object is newer than the state, and no two changes had the same revision.
fn revision_bounds_every_object(state: &State) -> Held {
    let nodes = state.nodes().iter().map(|node| &node.meta);
    let events = state.events().iter().map(|event| &event.meta);
    let pods = state.pods().iter().map(|pod| &pod.meta);
    let workloads = state.workloads().iter().map(|workload| &workload.meta);
    let mut seen = BTreeSet::new();
    nodes.chain(events).chain(pods).chain(workloads).try_for_each(|ObjectMeta { name, revision, .. }| {
        ensure(*revision <= state.revision(), || format!("{name} has {revision}, the state {}", state.revision()))?;
        ensure(seen.insert(*revision), || format!("{name} shares revision {revision} with another object"))
    })
}

fn incarnations_are_unique(state: &State) -> Held {
    let mut seen = BTreeSet::new();
    state.nodes().iter().try_for_each(|node| {
        let number = node.incarnation.0;
        ensure(seen.insert(number), || format!("incarnation {number} is there twice"))?;
        ensure(number <= state.counters.incarnations, || format!("incarnation {number} was never given out"))
    })
}

fn event_log_bounded(state: &State) -> Held {
    let count = state.events().len();
    ensure(count <= EVENTS_MAX, || format!("{count} events, at most {EVENTS_MAX}"))?;
    let newest = state.events().iter().next_back().map_or(0, |event| event.sequence);
    let counted = state.counters.events;
    ensure(newest <= counted, || format!("event {newest} is beyond the {counted} recorded"))
}

fn client_table_bounded(state: &State) -> Held {
    let (count, ordered) = (state.clients().len(), state.derived.recency.len());
    ensure(count <= CLIENTS_MAX, || format!("{count} clients, at most {CLIENTS_MAX}"))?;
    ensure(count == ordered, || format!("{count} clients, {ordered} of them in order of use"))?;
    state.derived.recency.iter().try_for_each(|(used, id)| {
        let known = state.clients().get(id).is_some_and(|client| client.used == *used);
        ensure(known, || format!("client {id:032x} was not last used at {used}"))
    })
}

fn counts_match(state: &State) -> Held {
    let ready = state.nodes().iter().filter(|node| node.is_ready()).count();
    let (kept, counted) = (state.node_counts(), NodeCounts { total: state.nodes().len(), ready });
    ensure(kept == counted, || format!("kept {kept:?}, counted {counted:?}"))
}

fn digest_equals_recomputation(state: &State) -> Held {
    fn matches<T: Stored>(table: &Table<T>) -> Held {
        let (kept, recomputed) = (table.digest(), table.recomputed_digest());
        ensure(kept == recomputed, || format!("kept {kept}, recomputed {recomputed}"))
    }
    matches(state.nodes())?;
    matches(state.events())?;
    matches(state.replicas())?;
    matches(state.clients())?;
    matches(state.free_slots())?;
    matches(state.zones())?;
    matches(state.aggregators())?;
    matches(state.pods())?;
    matches(state.workloads())?;
    matches(state.join_tokens())?;
    matches(state.credentials())?;
    matches(state.resting())
}

fn records_round_trip(state: &State) -> Held {
    let mut builder = StateBuilder::new();
    let mut previous: Option<Vec<u8>> = None;
    for (key, value) in state.records() {
        let bytes = key.to_bytes();
        ensure(RecordKey::from_bytes(&bytes).as_ref() == Ok(&key), || format!("key {key} does not round-trip"))?;
        ensure(previous.as_ref() < Some(&bytes), || format!("record {key} is out of order"))?;
        ensure(value.len() <= RECORD_BYTES_MAX, || format!("record {key} has {} bytes", value.len()))?;
        ensure(state.record(&key).as_ref() == Some(&value), || format!("record {key} differs when read alone"))?;
        builder.push(&key, &value).map_err(|error| error.to_string())?;
        previous = Some(bytes);
    }
    let rebuilt = builder.finish().map_err(|error| error.to_string())?;
    let (own, other) = (state.digest(), rebuilt.digest());
    ensure(own == other, || format!("digest {own}, after a round trip {other}"))?;
    ensure(state.node_counts() == rebuilt.node_counts(), || "counts differ after a round trip".to_owned())
}

fn ensure(holds: bool, detail: impl FnOnce() -> String) -> Held {
    if holds { Ok(()) } else { Err(detail()) }
}
