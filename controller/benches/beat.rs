//! The cost of a beat after its message has been decoded: nanoseconds, and no allocation.
//!
//! It calls the very function that sessions call, alone and while a sweep and a digest read the same table. It fails if
//! anything is allocated.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use muster_controller::door::handshakes::Handshakes;
use muster_controller::hearing::Hearing;
use muster_controller::session::beat::Beats;
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::digest::{Boot, DigestRequest};
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::sweep::{self, Sweep};
use muster_pulse::table::CHUNK_SLOTS;
use muster_pulse::tick::Tick;
use muster_raft::clock::SystemClock;
use muster_raft::feed::Feed;

const NODES: u32 = 100_000;
const BATCH: usize = 512;
/// The duration of each row of the table.
const DURATION: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    let hearing = hearing();
    let beats = Beats::new(hearing.clone(), Arc::default());
    let slots: Vec<Slot> = (0..NODES).map(|index| Slot { index, generation: 1 }).collect();
    for slot in &slots {
        let _ = beats.heard(*slot);
    }
    println!("{:<28} {:>7} {:>14} {:>14} {:>12}", "beats", "threads", "ns per beat", "beats per s", "allocations");
    let mut allocations = 0;
    for threads in [1, 2] {
        allocations += row("sessions", threads, |first| alone(&beats, &slots, first));
        let reading = AtomicBool::new(true);
        allocations += thread::scope(|scope| {
            scope.spawn(|| read(&hearing, &slots, &reading));
            let row = row("sessions, sweep and digest", threads, |first| alone(&beats, &slots, first));
            reading.store(false, Ordering::Relaxed);
            row
        });
        allocations += row("aggregators, 512 to a message", threads, |first| carried(&beats, &slots, first));
    }
    if allocations == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("a beat must not allocate, but {allocations} allocations were counted");
    ExitCode::FAILURE
}

/// Runs `round` on `threads` threads for a while, prints the cost of one beat, and returns the number of allocations. A
/// round gets the position in the fleet at which its thread begins, and returns how many beats it made.
fn row(name: &str, threads: u32, round: impl Fn(u32) -> u64 + Sync) -> u64 {
    let worker = |number: u32| {
        let first = number * (NODES / threads);
        let (mut beats, started, mut took) = (0, Instant::now(), Duration::ZERO);
        let counted = measure(|| {
            while took < DURATION {
                beats += round(first);
                took = started.elapsed();
            }
        });
        (beats, took, counted.count_total)
    };
    let done: Vec<(u64, Duration, u64)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || worker(number))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let allocations = done.iter().map(|(_, _, allocations)| allocations).sum();
    let nanos =
        done.iter().map(|(beats, took, _)| took.as_nanos() as f64 / *beats as f64).sum::<f64>() / f64::from(threads);
    let rate = done.iter().map(|(beats, took, _)| *beats as f64 / took.as_secs_f64()).sum::<f64>();
    println!("{name:<28} {threads:>7} {nanos:>14.1} {rate:>14.0} {allocations:>12}");
    allocations
}

fn alone(beats: &Beats, slots: &[Slot], first: u32) -> u64 {
    for step in 0..NODES {
        let slot = slots[((first + step) % NODES) as usize];
        let _ = black_box(beats.heard(black_box(slot)));
    }
    u64::from(NODES)
}

fn carried(beats: &Beats, slots: &[Slot], first: u32) -> u64 {
    let mut handles = [0; BATCH];
    for (place, handle) in handles.iter_mut().enumerate() {
        *handle = (first + place as u32) % NODES;
    }
    beats.carried(slots, black_box(&handles), |handle| unreachable!("handle {handle} is bound"));
    BATCH as u64
}

/// The load beside the beats: the leader's sweep, and a peer that pulls the full table.
fn read(hearing: &Hearing, slots: &[Slot], reading: &AtomicBool) {
    let tables = hearing.pulses().tables();
    let mut sweep = Sweep::over(0..(NODES as usize).div_ceil(CHUNK_SLOTS));
    for slot in slots {
        sweep.watch(*slot, Tick::BOOT, sweep::PulseState::Heard).expect("the slot is swept");
    }
    let mut buffer = Vec::new();
    while reading.load(Ordering::Relaxed) {
        sweep.run(&tables, &hearing.pulses().blindness(), GRACE, hearing.tick(), |change| {
            black_box(change);
        });
        let mut digest =
            DigestOutbox::new(&tables, Boot(1)).answer(DigestRequest { asked: 1, applied: None }, hearing.tick());
        while digest.next_into(&mut buffer) {
            black_box(&buffer);
        }
    }
}

fn hearing() -> Hearing {
    let clock = Arc::new(SystemClock);
    let feed = Feed::new(Arc::clone(&clock) as _);
    Hearing::new(ReplicaId(1), Duration::from_secs(10), clock, feed, Handshakes::default())
}
