//! Invariants of pods, workloads and addresses.

use std::sync::Arc;

use crate::invariant::{Held, ensure};
use crate::object::record::Stored;
use crate::rule;
use crate::state::State;
use crate::store::address_index::AddressIndex;
use crate::store::derived::Derived;
use crate::store::pod_index::PodIndex;
use crate::value::cidr::Span;

pub(super) fn pods_equal_recomputation(state: &State) -> Held {
    let mut recomputed = PodIndex::default();
    for pod in state.pods().iter() {
        let node = pod.node().and_then(|name| state.node(name));
        recomputed.enter(pod, node.map(Arc::as_ref));
    }
    let kept = &state.derived.pods;
    ensure(*kept == recomputed, || format!("kept {kept:?}, not {recomputed:?}"))?;
    let mut derived = Derived { pods: recomputed, ..Derived::default() };
    state.workloads().iter().for_each(|workload| derived.note_workload(workload));
    let (kept, recomputed) = (&state.derived.unsettled, &derived.unsettled);
    ensure(kept == recomputed, || format!("unsettled {kept:?}, not {recomputed:?}"))
}

pub(super) fn addresses_equal_recomputation(state: &State) -> Held {
    let mut recomputed = AddressIndex::default();
    state.nodes().iter().for_each(|node| recomputed.enter(node, None));
    state.resting().iter().for_each(|resting| recomputed.rest(resting, None));
    recomputed.replan(state.addressing());
    let kept = state.addresses();
    ensure(*kept == recomputed, || format!("kept {kept:?}, not {recomputed:?}"))
}

pub(super) fn no_address_is_held_twice(state: &State) -> Held {
    let held = state.nodes().iter().flat_map(|node| node.spec.pod_cidrs.iter().map(move |cidr| (Span::of(cidr), node)));
    let mut held: Vec<_> = held.collect();
    held.sort_by_key(|(span, _)| *span);
    held.windows(2).try_for_each(|pair| {
        let [(first, one), (second, other)] = pair else { return Ok(()) };
        let names = || format!("{} and {} share addresses", one.meta.name, other.meta.name);
        ensure(!first.overlaps(second), names)
    })
}

pub(super) fn every_pod_is_valid(state: &State) -> Held {
    state.pods().iter().try_for_each(|pod| {
        let key = pod.key();
        rule::pod::pod(pod).map_err(|invalid| format!("pod {key}: {invalid}"))?;
        let agree = pod.meta.deleted.is_some() == pod.ending.is_some();
        ensure(agree, || format!("pod {key} is deleted by one word and not by the other"))?;
        let is_homeless = pod.spec.binding.is_some() && state.node_of(pod).is_none();
        ensure(!is_homeless || pod.is_terminating(), || format!("pod {key} stays although its node is gone"))
    })
}
