//! Costs of the leader's sweep over a million slots that three replicas share: when nothing changed, and when one node
//! in a hundred did.

use std::time::Duration;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::blindness::Blindness;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::sweep::{PulseState, Sweep};
use muster_pulse::table::CHUNK_SLOTS;
use muster_pulse::tick::Tick;

const SLOTS: u32 = 1_000_000;
/// One in this many is not heard any more.
const QUIET: u32 = 100;
const GRACE: Duration = Duration::from_secs(40);
/// When the quiet nodes were last heard, and all the others.
const QUIET_SINCE: u64 = 50;
const HEARD: u64 = 80;
/// Every node is within grace.
const EARLY: u64 = 89;
/// The quiet nodes are not within grace any more.
const LATE: u64 = 100;

fn main() {
    divan::main();
}

#[divan::bench]
fn healthy(bencher: Bencher<'_, '_>) {
    let mut fleet = SweptFleet::new();
    bencher.counter(ItemsCount::new(SLOTS)).bench_local(|| assert_eq!(fleet.changes(EARLY), 0));
}

/// The quiet nodes fall silent in one run and are heard again in the next.
#[divan::bench]
fn one_percent_changed(bencher: Bencher<'_, '_>) {
    let mut fleet = SweptFleet::new();
    let mut moments = [LATE, EARLY].into_iter().cycle();
    bencher.counter(ItemsCount::new(SLOTS)).bench_local(|| {
        let now = moments.next().unwrap_or(LATE);
        assert_eq!(fleet.changes(now), SLOTS / QUIET);
    });
}

struct SweptFleet {
    tables: PulseTables,
    blindness: Blindness,
    sweep: Sweep,
}

// === impl SweptFleet ===

impl SweptFleet {
    fn new() -> Self {
        let mut tables = PulseTables::new(ReplicaId(1));
        let mut sweep = Sweep::over(0..(SLOTS as usize).div_ceil(CHUNK_SLOTS));
        let others = [2, 3].map(|replica| tables.admit(ReplicaId(replica)).cloned().expect("there is room"));
        let each = [tables.own().clone()].into_iter().chain(others).cycle();
        for (index, table) in (0..SLOTS).zip(each) {
            let slot = Slot { index, generation: 1 };
            let _ = table.beat(slot, at(if index % QUIET == 0 { QUIET_SINCE } else { HEARD }));
            sweep.watch(slot, Tick::BOOT, PulseState::Heard).expect("the slot is swept");
        }
        Self { tables, blindness: Blindness::new(Duration::from_secs(10)), sweep }
    }

    fn changes(&mut self, now: u64) -> u32 {
        let mut changes = 0;
        self.sweep.run(&self.tables, &self.blindness, GRACE, at(now), |change| {
            black_box(change);
            changes += 1;
        });
        changes
    }
}

fn at(seconds: u64) -> Tick {
    Tick::since_boot(Duration::from_secs(seconds))
}
