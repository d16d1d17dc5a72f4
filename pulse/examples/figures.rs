//! Costs of the pulse path on this machine, for a million nodes heard through three replicas. Run it with `--release`.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::blindness::Blindness;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::digest::Boot;
use muster_pulse::inbox::DigestInbox;
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::sweep::{PulseState, Sweep};
use muster_pulse::table::{CHUNK_SLOTS, PulseTable};
use muster_pulse::tick::Tick;

const NODES: u32 = 1_000_000;
const ROUNDS: u32 = 20;
const GRACE: Duration = Duration::from_secs(40);

fn main() -> Result<(), Box<dyn Error>> {
    let mut tables = PulseTables::new(ReplicaId(1));
    tables.admit(ReplicaId(2))?;
    tables.admit(ReplicaId(3))?;
    beats(&tables);
    sweeps(&tables)?;
    digests(&tables)
}

fn slot(index: u32) -> Slot {
    Slot { index, generation: 1 }
}

fn now(millis: u32) -> Tick {
    Tick::since_boot(Duration::from_millis(u64::from(millis)))
}

/// The best of several rounds: the others measure other load on the machine.
fn best(what: &str, per: u32, mut round: impl FnMut(u32)) {
    let times = (0..ROUNDS).map(|number| {
        let start = Instant::now();
        round(number);
        start.elapsed()
    });
    let best = times.min().unwrap_or_default();
    println!("{what:<48} {best:>12.1?} {:>8.2} ns each", best.as_nanos() as f64 / f64::from(per));
}

fn beats(tables: &PulseTables) {
    let each: Vec<&PulseTable> = tables.iter().map(|(_, table)| table).collect();
    best("1M beats, in order, one thread", NODES, |round| {
        for index in 0..NODES {
            let _ = black_box(tables.own().beat(slot(index), now(round)));
        }
    });
    best("1M beats, scattered, one thread", NODES, |round| {
        let scattered = |step: u32| (u64::from(step) * 611_953 % u64::from(NODES)) as u32;
        for step in 0..NODES {
            let _ = black_box(tables.own().beat(slot(scattered(step)), now(100 + round)));
        }
    });
    for index in 0..NODES {
        let _ = each[index as usize % each.len()].beat(slot(index), now(1000));
    }
}

fn sweeps(tables: &PulseTables) -> Result<(), Box<dyn Error>> {
    let mut blindness = Blindness::new(Duration::from_secs(10));
    let mut sweep = Sweep::over(0..(NODES as usize).div_ceil(CHUNK_SLOTS));
    for index in 0..NODES {
        sweep.watch(slot(index), Tick::BOOT, PulseState::Heard)?;
    }
    let mut changes = 0;
    best("sweep of 1M slots, 3 replicas, all well", NODES, |round| {
        sweep.run(tables, &blindness, GRACE, now(2000 + round), |_| changes += 1);
    });
    blindness.digest_missed(ReplicaId(2), now(60_000));
    best("sweep, two thirds silent, one third excused", NODES, |_| {
        sweep.run(tables, &blindness, GRACE, now(60_001), |_| changes += 1);
    });
    println!("changes reported: {changes}, silent: {}", sweep.silent());
    Ok(())
}

fn digests(tables: &PulseTables) -> Result<(), Box<dyn Error>> {
    for index in 0..NODES {
        let _ = tables.own().beat(slot(index), now(3000 + index / 100));
    }
    let mut outbox = DigestOutbox::new(tables, Boot(1));
    let mut inbox = DigestInbox::new(ReplicaId(1), Arc::default());
    let asked = now(20_000);
    let mut parts = Vec::new();
    best("full digest of 1M slots, told", NODES, |_| {
        let mut digest = outbox.answer(inbox.ask(asked), asked);
        let mut buffer = Vec::new();
        parts.clear();
        while digest.next_into(&mut buffer) {
            parts.push(buffer.clone());
        }
    });
    let bytes: usize = parts.iter().map(Vec::len).sum();
    println!("full digest: {} parts, {:.2} bytes per slot", parts.len(), bytes as f64 / f64::from(NODES));
    let start = Instant::now();
    for part in &parts {
        inbox.receive(part, asked)?;
    }
    println!("full digest of 1M slots, heard {:?}", start.elapsed());
    best("digest of 1M slots with no news", NODES, |_| {
        let mut buffer = Vec::new();
        let request = inbox.ask(asked);
        let mut digest = outbox.answer(request, asked.after(Duration::from_secs(60)));
        while digest.next_into(&mut buffer) {
            let _ = black_box(inbox.receive(&buffer, asked));
        }
    });
    Ok(())
}
