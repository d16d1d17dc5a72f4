//! A beat allocates nothing: the quick form of `benches/beat.rs`.

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use muster_controller::door::handshakes::Handshakes;
use muster_controller::hearing::Hearing;
use muster_controller::session::beat::{Beats, UNBOUND};
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::table::Beat;
use muster_raft::clock::SystemClock;
use muster_raft::feed::Feed;

#[test]
fn a_beat_allocates_nothing() {
    let figures = Arc::default();
    let beats = Beats::new(hearing(), Arc::clone(&figures));
    let mut slots: Vec<Slot> = (0..1_000).map(|index| Slot { index, generation: 1 }).collect();
    slots[7] = UNBOUND;
    let handles: Vec<u32> = (0..1_001).collect();
    // The first beat into a region of slots allocates the whole region.
    assert_eq!(beats.heard(slots[0]), Beat::Heard);

    let alone = measure(|| {
        for slot in &slots[8..] {
            assert_eq!(beats.heard(*slot), Beat::Heard);
        }
    });
    let mut strangers = 0;
    let carried = measure(|| beats.carried(&slots, &handles, |_| strangers += 1));
    assert_eq!((alone.count_total, carried.count_total), (0, 0));
    assert_eq!(strangers, 2);
    assert_eq!((figures.session_beats(), figures.aggregator_beats()), (993, 999));
    let control = measure(|| drop(std::hint::black_box(Box::new(7))));
    assert_eq!(control.count_total, 1, "allocations are counted at all");
}

fn hearing() -> Hearing {
    let clock = Arc::new(SystemClock);
    let feed = Feed::new(Arc::clone(&clock) as _);
    Hearing::new(ReplicaId(1), Duration::from_secs(10), clock, feed, Handshakes::default())
}
