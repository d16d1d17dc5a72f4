//! Invariants of nodes, zones and queues.

use crate::invariant::{Held, ensure};
use crate::object::aggregator::AGGREGATORS_MAX;
use crate::object::policy::Rate;
use crate::rule::condition_taint;
use crate::state::State;
use crate::store::derived::Derived;
use crate::value::time::Stamp;

pub(super) fn derived_equals_recomputation(state: &State) -> Held {
    let mut recomputed = Derived::default();
    state.nodes().iter().for_each(|node| recomputed.enter(node));
    let kept = &state.derived;
    ensure(kept.census == recomputed.census, || format!("census {:?}, not {:?}", kept.census, recomputed.census))?;
    ensure(kept.queues == recomputed.queues, || format!("queues {:?}, not {:?}", kept.queues, recomputed.queues))?;
    ensure(kept.absent == recomputed.absent, || format!("absent {:?}, not {:?}", kept.absent, recomputed.absent))
}

pub(super) fn one_no_execute_taint(state: &State) -> Held {
    state.nodes().iter().try_for_each(|node| {
        let absences = condition_taint::present_absences(&node.spec.taints);
        ensure(absences.len() <= 1, || format!("node {} has {absences:?}", node.meta.name))
    })
}

pub(super) fn no_schedule_as_wanted(state: &State) -> Held {
    state.nodes().iter().try_for_each(|node| {
        let (conditions, cordoned) = (&node.status.conditions, node.spec.unschedulable);
        let difference =
            condition_taint::no_schedule_difference(conditions, cordoned, &node.spec.taints, Stamp::default());
        ensure(difference.is_empty(), || format!("node {} lacks {difference:?}", node.meta.name))
    })
}

pub(super) fn labels_are_mirrored(state: &State) -> Held {
    state.nodes().iter().try_for_each(|node| {
        let corrections = condition_taint::label_corrections(&node.meta.labels);
        ensure(corrections.is_empty(), || format!("node {} lacks {corrections:?}", node.meta.name))
    })
}

pub(super) fn buckets_follow_zones(state: &State) -> Held {
    state.zones().iter().try_for_each(|record| {
        let (zone, bucket) = (record.zone.rate, record.bucket.rate());
        ensure(zone == bucket, || format!("zone {} has rate {zone}, its bucket {bucket}", record.key))
    })
}

pub(super) fn nothing_moves_in_the_dark(state: &State) -> Held {
    let all_disrupted = state.policy_state().all_disrupted;
    let zones = state.zones().iter().filter(|record| all_disrupted && !record.is_retired());
    zones.into_iter().try_for_each(|record| {
        let (key, rate) = (&record.key, record.zone.rate);
        ensure(rate == Rate::NEVER, || format!("zone {key} evicts {rate} nodes per second"))
    })
}

pub(super) fn aggregators_are_valid(state: &State) -> Held {
    let count = state.aggregators().len();
    ensure(count <= AGGREGATORS_MAX, || format!("{count} aggregators, at most {AGGREGATORS_MAX}"))?;
    state.aggregators().iter().try_for_each(|record| {
        ensure(!record.nodes.is_empty(), || format!("aggregator {} carries no node", record.name))?;
        record.check().map_err(|invalid| format!("aggregator {}: {invalid}", record.name))
    })
}
