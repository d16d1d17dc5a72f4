//! The packed sweep against a scan that asks every slot in turn.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::blindness::{Blindness, Trace};
use muster_pulse::by_replica::PulseTables;
use muster_pulse::sweep::{PulseChange, PulseState, Sweep, SweepError};
use muster_pulse::table::{CHUNK_SLOTS, GENERATION_MAX};
use muster_pulse::tick::Tick;
use proptest::prelude::*;

const GRACE: Duration = Duration::from_secs(40);
const BACKOFF_CAP: Duration = Duration::from_secs(5);

fn at(seconds: u64) -> Tick {
    Tick::since_boot(Duration::from_secs(seconds))
}

fn tables() -> PulseTables {
    let mut tables = PulseTables::new(ReplicaId(1));
    tables.admit(ReplicaId(2)).unwrap();
    tables.admit(ReplicaId(3)).unwrap();
    tables
}

fn beat(tables: &PulseTables, replica: ReplicaId, slot: Slot, tick: Tick) {
    let table = if replica == tables.me() { tables.own() } else { tables.other(replica).unwrap() };
    let _ = table.beat(slot, tick);
}

/// The reference sweep: the same promises, kept slot by slot.
struct Naive(BTreeMap<Slot, (Tick, PulseState)>);

impl Naive {
    fn run(&mut self, tables: &PulseTables, blindness: &Blindness, now: Tick) -> Vec<PulseChange> {
        let mut changes = Vec::new();
        for (slot, (since, hearing)) in &mut self.0 {
            let trace = match tables.last_heard(*slot) {
                Some((at, through)) => Trace::Heard { at, through },
                None => Trace::Unplaced { since: *since },
            };
            let within_grace = matches!(trace, Trace::Heard { at, .. } if at.after(GRACE) > now);
            let found = match hearing {
                PulseState::Silent if within_grace => PulseState::Heard,
                PulseState::Heard if blindness.deadline(trace, GRACE, now).at <= now => PulseState::Silent,
                PulseState::Silent | PulseState::Heard => continue,
            };
            *hearing = found;
            changes.push(PulseChange { slot: *slot, hearing: found, trace });
        }
        changes
    }
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Watch(Slot, PulseState),
    Unwatch(Slot),
    Beat(Slot, u64),
    TakeOver,
    Digest(u64, bool),
    Canary(u64, bool),
    Run,
}

fn slot() -> impl Strategy<Value = Slot> {
    (0..2 * CHUNK_SLOTS as u32, 1..3_u32).prop_map(|(index, generation)| Slot { index: index / 300 * 300, generation })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..30_u64).prop_map(Step::Wait),
        6 => (slot(), prop_oneof![Just(PulseState::Heard), Just(PulseState::Silent)]).prop_map(|(s, h)| Step::Watch(s, h)),
        1 => slot().prop_map(Step::Unwatch),
        8 => (slot(), 1..4_u64).prop_map(|(slot, replica)| Step::Beat(slot, replica)),
        1 => Just(Step::TakeOver),
        2 => (2..4_u64, any::<bool>()).prop_map(|(replica, came)| Step::Digest(replica, came)),
        2 => (1..4_u64, any::<bool>()).prop_map(|(replica, heard)| Step::Canary(replica, heard)),
        4 => Just(Step::Run),
    ]
}

proptest! {
    #[test]
    fn a_packed_sweep_equals_a_naive_scan(steps in prop::collection::vec(step(), 1..200)) {
        let (tables, mut blindness) = (tables(), Blindness::new(BACKOFF_CAP));
        let (mut sweep, mut naive) = (Sweep::over(0..2), Naive(BTreeMap::new()));
        let mut now = at(0);
        for step in steps {
            match step {
                Step::Wait(seconds) => now = now.after(Duration::from_secs(seconds)),
                Step::Watch(slot, believed) => {
                    sweep.watch(slot, now, believed).unwrap();
                    naive.0.retain(|held, _| held.index != slot.index);
                    naive.0.insert(slot, (now, believed));
                }
                Step::Unwatch(slot) => {
                    sweep.unwatch(slot).unwrap();
                    naive.0.remove(&slot);
                }
                Step::Beat(slot, replica) => beat(&tables, ReplicaId(replica), slot, now),
                Step::TakeOver => {
                    blindness.took_over([ReplicaId(2), ReplicaId(3)], now);
                }
                Step::Digest(replica, true) => blindness.digest_complete(ReplicaId(replica), now),
                Step::Digest(replica, false) => blindness.digest_missed(ReplicaId(replica), now),
                Step::Canary(replica, true) => blindness.canary_heard(ReplicaId(replica), now),
                Step::Canary(replica, false) => blindness.canary_late(ReplicaId(replica), now),
                Step::Run => {
                    let mut changes = Vec::new();
                    sweep.run(&tables, &blindness, GRACE, now, |change| changes.push(change));
                    prop_assert_eq!(changes, naive.run(&tables, &blindness, now));
                    let silent = naive.0.values().filter(|(_, hearing)| *hearing == PulseState::Silent).count();
                    prop_assert_eq!(sweep.silent(), silent);
                }
            }
        }
    }
}

#[test]
fn a_node_is_silent_from_last_heard_plus_grace_on() {
    let (tables, blindness, mut sweep) = (tables(), Blindness::new(BACKOFF_CAP), Sweep::over(0..1));
    let slot = Slot { index: 70, generation: 1 };
    sweep.watch(slot, at(0), PulseState::Heard).unwrap();
    beat(&tables, ReplicaId(2), slot, at(10));
    let mut found = Vec::new();
    for millis_early in [1, 0, 0] {
        let now = at(50).before(Duration::from_millis(millis_early));
        sweep.run(&tables, &blindness, GRACE, now, |change| found.push((millis_early, change.hearing)));
    }
    assert_eq!(found, [(0, PulseState::Silent)], "once, and not a millisecond early");
    beat(&tables, ReplicaId(3), slot, at(51));
    sweep.run(&tables, &blindness, GRACE, at(52), |change| found.push((52, change.hearing)));
    assert_eq!(found[1..], [(52, PulseState::Heard)]);
}

#[test]
fn a_slot_outside_the_range_of_a_sweep_is_refused() {
    let mut sweep = Sweep::over(1..2);
    let first = CHUNK_SLOTS as u32;
    for (index, generation) in [(first - 1, 1), (2 * first, 1), (u32::MAX, 1), (first, 0), (first, GENERATION_MAX + 1)]
    {
        let result = sweep.watch(Slot { index, generation }, at(0), PulseState::Heard);
        assert_eq!(result, Err(SweepError::NotMine { index, generation, first: CHUNK_SLOTS, end: 2 * CHUNK_SLOTS }));
    }
    sweep.watch(Slot { index: first, generation: 1 }, at(0), PulseState::Silent).unwrap();
    assert_eq!(sweep.silent(), 1);
}
