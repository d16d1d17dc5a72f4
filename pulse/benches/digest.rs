//! Costs of making a digest for a peer and of applying a peer's digest: all of a million slots, or the tenth of them
//! that was heard since the last one.

use std::sync::Arc;
use std::time::Duration;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::digest::{Boot, DigestId, DigestRequest};
use muster_pulse::inbox::{DigestInbox, Progress};
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::table::PulseTable;
use muster_pulse::tick::Tick;

const SLOTS: u32 = 1_000_000;
/// One in this many was heard since the last digest.
const NEWS: usize = 10;
const TELLER: ReplicaId = ReplicaId(2);
const BOOT: Boot = Boot(1);
/// Beats up to this moment are told in full tables only.
const LONG_AGO: u64 = 10;
const FIRST_DIGEST: u64 = 15;
const LATELY: u64 = 18;
const NOW: u64 = 20;

/// The request of a new stream.
const FULL: DigestRequest = DigestRequest { asked: 1, applied: None };
/// The request of a peer that has the first digest.
const CHANGED: DigestRequest = DigestRequest { asked: 2, applied: Some(DigestId { boot: BOOT, sequence: 1 }) };

fn main() {
    divan::main();
}

#[divan::bench]
fn encode_full(bencher: Bencher<'_, '_>) {
    encode(bencher, FULL, SLOTS);
}

#[divan::bench]
fn encode_changed(bencher: Bencher<'_, '_>) {
    encode(bencher, CHANGED, SLOTS / NEWS as u32);
}

#[divan::bench]
fn apply_full(bencher: Bencher<'_, '_>) {
    let parts = Teller::new().parts(FULL);
    let table = Arc::default();
    bencher
        .counter(ItemsCount::new(SLOTS))
        .with_inputs(|| listener(&table))
        .bench_local_refs(|inbox| receive(inbox, &parts));
}

#[divan::bench]
fn apply_changed(bencher: Bencher<'_, '_>) {
    let mut teller = Teller::new();
    let (first, parts) = (teller.first.clone(), teller.parts(CHANGED));
    let table = Arc::default();
    let up_to_date = || {
        let mut inbox = listener(&table);
        receive(&mut inbox, &first);
        let _ = inbox.ask(at(NOW));
        inbox
    };
    bencher
        .counter(ItemsCount::new(SLOTS / NEWS as u32))
        .with_inputs(up_to_date)
        .bench_local_refs(|inbox| receive(inbox, &parts));
}

/// A replica that made one digest before it had heard any node.
struct Teller {
    outbox: DigestOutbox,
    first: Vec<Vec<u8>>,
}

// === impl Teller ===

impl Teller {
    fn new() -> Self {
        let tables = PulseTables::new(TELLER);
        let mut teller = Self { outbox: DigestOutbox::new(&tables, BOOT), first: Vec::new() };
        teller.first = teller.parts_as_of(FULL, FIRST_DIGEST);
        for index in 0..SLOTS {
            let _ = tables.own().beat(Slot { index, generation: 1 }, at(LONG_AGO));
        }
        for index in (0..SLOTS).step_by(NEWS) {
            let _ = tables.own().beat(Slot { index, generation: 1 }, at(LATELY));
        }
        teller
    }

    fn parts(&mut self, request: DigestRequest) -> Vec<Vec<u8>> {
        self.parts_as_of(request, NOW)
    }

    fn parts_as_of(&mut self, request: DigestRequest, now: u64) -> Vec<Vec<u8>> {
        let mut digest = self.outbox.answer(request, at(now));
        let (mut parts, mut buffer) = (Vec::new(), Vec::new());
        while digest.next_into(&mut buffer) {
            parts.push(buffer.clone());
        }
        parts
    }
}

fn encode(bencher: Bencher<'_, '_>, request: DigestRequest, entries: u32) {
    let mut teller = Teller::new();
    let mut buffer = Vec::new();
    bencher.counter(ItemsCount::new(entries)).bench_local(|| {
        let mut digest = teller.outbox.answer(request, at(NOW));
        while digest.next_into(&mut buffer) {
            black_box(&buffer);
        }
    });
}

/// An inbox that waits for the answer to its first request.
fn listener(table: &Arc<PulseTable>) -> DigestInbox {
    let mut inbox = DigestInbox::new(TELLER, Arc::clone(table));
    let _ = inbox.ask(at(NOW));
    inbox
}

fn receive(inbox: &mut DigestInbox, parts: &[Vec<u8>]) {
    let mut progress = Progress::Partial;
    for part in parts {
        progress = inbox.receive(black_box(part), at(NOW)).expect("the digest is in order");
    }
    assert_eq!(progress, Progress::Complete);
}

fn at(seconds: u64) -> Tick {
    Tick::since_boot(Duration::from_secs(seconds))
}
