//! Digests end to end. Whatever is lost, late, reordered, damaged or restarted, no node looks heard later than it was,
//! and one complete exchange brings the listener up to date.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::digest::{AGE_QUANTUM, Boot, DigestRequest, PART_MAX};
use muster_pulse::inbox::{DigestInbox, FULL_TABLE_MAX, InboxError, Progress, ROUND_TRIP_MAX};
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::table::PulseTable;
use muster_pulse::tick::Tick;
use proptest::prelude::*;

const TELLER: ReplicaId = ReplicaId(2);
/// The two processes did not start at the same time.
const TELLER_BOOTED: u64 = 50_000;

/// One teller, one listener, the network between them, and the truth. Times are milliseconds of true time.
struct World {
    now: u64,
    tables: PulseTables,
    outbox: DigestOutbox,
    boots: u64,
    inbox: DigestInbox,
    table: Arc<PulseTable>,
    /// When the teller truly heard each slot, over all its lives.
    truth: BTreeMap<Slot, u64>,
    /// The slots among these that the teller still knows.
    current: BTreeMap<u32, Slot>,
    stuck: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum Step {
    Wait { millis: u64 },
    Beat { index: u32, generation: u32 },
    Exchange { there: u64, back: u64 },
    LoseRequest,
    LoseAnswer { there: u64 },
    DeliverStuck { which: usize },
    NewStream,
    TellerRestarts,
    Damage { at: usize, byte: u8 },
}

impl World {
    fn new() -> Self {
        let tables = PulseTables::new(TELLER);
        let table = Arc::new(PulseTable::new());
        Self {
            now: TELLER_BOOTED,
            outbox: DigestOutbox::new(&tables, Boot(0)),
            tables,
            boots: 0,
            inbox: DigestInbox::new(TELLER, Arc::clone(&table)),
            table,
            truth: BTreeMap::new(),
            current: BTreeMap::new(),
            stuck: Vec::new(),
        }
    }

    fn teller_now(&self) -> Tick {
        Tick::since_boot(Duration::from_millis(self.now - TELLER_BOOTED))
    }

    fn listener(at: u64) -> Tick {
        Tick::since_boot(Duration::from_millis(at))
    }

    fn beat(&mut self, slot: Slot) {
        let _ = self.tables.own().beat(slot, self.teller_now());
        let holder = self.current.entry(slot.index).or_insert(slot);
        if holder.generation <= slot.generation {
            *holder = slot;
            self.truth.insert(slot, self.now);
        }
    }

    fn answer(&mut self, request: DigestRequest) -> Vec<Vec<u8>> {
        let mut digest = self.outbox.answer(request, self.teller_now());
        let (mut parts, mut buffer) = (Vec::new(), Vec::new());
        while digest.next_into(&mut buffer) {
            parts.push(buffer.clone());
        }
        parts
    }

    /// Whether the exchange brought the listener up to date.
    fn exchange(&mut self, there: u64, back: u64) -> bool {
        let request = self.inbox.ask(Self::listener(self.now));
        self.now += there;
        let parts = self.answer(request);
        self.now += back;
        let results: Vec<_> = parts.iter().map(|part| self.inbox.receive(part, Self::listener(self.now))).collect();
        results.last() == Some(&Ok(Progress::Complete))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait { millis } => self.now += millis,
            Step::Beat { index, generation } => self.beat(Slot { index, generation }),
            Step::Exchange { there, back } => {
                let in_time = there + back <= ROUND_TRIP_MAX.as_millis() as u64;
                assert_eq!(self.exchange(there, back), in_time);
                if in_time {
                    self.assert_up_to_date(ROUND_TRIP_MAX);
                }
            }
            Step::LoseRequest => drop(self.inbox.ask(Self::listener(self.now)).asked),
            Step::LoseAnswer { there } => {
                let request = self.inbox.ask(Self::listener(self.now));
                self.now += there;
                let parts = self.answer(request);
                self.stuck.extend(parts);
            }
            Step::DeliverStuck { which } => self.deliver_stuck(which),
            Step::NewStream => self.inbox.restart(),
            Step::TellerRestarts => self.restart_teller(),
            Step::Damage { at, byte } => self.deliver_damaged(at, byte),
        }
    }

    /// A delayed answer arrives while a later request is in flight.
    fn deliver_stuck(&mut self, which: usize) {
        let _ = self.inbox.ask(Self::listener(self.now));
        if !self.stuck.is_empty() {
            let part = &self.stuck[which % self.stuck.len()];
            let result = self.inbox.receive(part, Self::listener(self.now));
            assert!(matches!(result, Err(InboxError::Unasked { .. })), "{result:?}");
        }
    }

    fn restart_teller(&mut self) {
        self.boots += 1;
        self.tables = PulseTables::new(TELLER);
        self.outbox = DigestOutbox::new(&self.tables, Boot(self.boots));
        self.current.clear();
    }

    /// The header is left alone: TLS protects identity and integrity, and a damaged age may say anything.
    fn deliver_damaged(&mut self, at: usize, byte: u8) {
        let request = self.inbox.ask(Self::listener(self.now));
        let mut part = self.answer(request).remove(0);
        let cut = at % part.len();
        part.truncate(cut);
        part.push(byte | 0x80);
        let before = self.snapshot();
        let result = self.inbox.receive(&part, Self::listener(self.now));
        assert!(result.is_err(), "a part that breaks off was accepted: {result:?}");
        assert_eq!(before, self.snapshot(), "a refused part left traces");
    }

    fn snapshot(&self) -> Vec<(Slot, Tick)> {
        self.table.chunks().flat_map(|(number, chunk)| chunk.iter(number)).collect()
    }

    fn assert_no_slot_heard_later_than_it_was(&self) {
        for (slot, heard) in self.snapshot() {
            let truth = Self::listener(self.truth[&slot]);
            assert!(heard <= truth, "{slot:?} was heard at {truth:?} but looks heard at {heard:?}");
        }
    }

    /// A beat is told once, so it stays as inexact as the round trip that told it; a full table tells all anew.
    fn assert_up_to_date(&self, round_trip: Duration) {
        for slot in self.current.values().filter(|slot| self.newest_in_truth(**slot)) {
            let truth = Self::listener(self.truth[slot]);
            let heard = self.table.heard(*slot).expect("told by a complete digest");
            let error = round_trip + AGE_QUANTUM;
            assert!(truth.elapsed_since(heard) <= error, "{slot:?}: {truth:?} is told as {heard:?}");
        }
    }

    /// A restarted teller may hear a straggler of an older generation than it knew before; the listener ignores that.
    fn newest_in_truth(&self, slot: Slot) -> bool {
        let successor = Slot { generation: slot.generation + 1, ..slot };
        self.truth.range(successor..).next().is_none_or(|(other, _)| other.index != slot.index)
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..5_000_u64).prop_map(|millis| Step::Wait { millis }),
        8 => (0..40_u32, 1..4_u32).prop_map(|(near, generation)| Step::Beat { index: near * 211, generation }),
        5 => (0..600_u64, 0..600_u64).prop_map(|(there, back)| Step::Exchange { there, back }),
        1 => Just(Step::LoseRequest),
        2 => (0..3_000_u64).prop_map(|there| Step::LoseAnswer { there }),
        2 => any::<usize>().prop_map(|which| Step::DeliverStuck { which }),
        1 => Just(Step::NewStream),
        1 => Just(Step::TellerRestarts),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Step::Damage { at, byte }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_history_makes_a_slot_look_heard_later_than_it_was(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.assert_no_slot_heard_later_than_it_was();
        }
        world.inbox.restart();
        prop_assert!(world.exchange(0, 0));
        world.assert_up_to_date(Duration::ZERO);
        world.assert_no_slot_heard_later_than_it_was();
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, versioned: bool) {
        let mut inbox = DigestInbox::new(TELLER, Arc::default());
        let _ = inbox.ask(Tick::BOOT);
        let bytes = if versioned { [&[1, 2], bytes.as_slice()].concat() } else { bytes };
        let _ = inbox.receive(&bytes, Tick::BOOT);
    }

    #[test]
    fn a_flipped_byte_never_panics_and_is_applied_whole_or_not_at_all(at: prop::sample::Index, flip in 1..=255_u8) {
        let mut world = World::new();
        (0..300).for_each(|index| world.beat(Slot { index: index * 3, generation: 1 + index % 2 }));
        let request = world.inbox.ask(World::listener(world.now));
        let mut part = world.answer(request).remove(0);
        let at = at.index(part.len());
        part[at] ^= flip;
        if world.inbox.receive(&part, World::listener(world.now)).is_err() {
            prop_assert!(world.snapshot().is_empty());
        }
    }
}

#[test]
fn a_digest_about_another_replica_is_refused() {
    let mut world = World::new();
    world.beat(Slot { index: 1, generation: 1 });
    let mut of_another = DigestInbox::new(ReplicaId(3), Arc::default());
    let request = of_another.ask(Tick::BOOT);
    let part = world.answer(request).remove(0);
    let result = of_another.receive(&part, Tick::BOOT);
    assert_eq!(result, Err(InboxError::Echo { from: ReplicaId(3), about: TELLER }));
}

#[test]
fn a_digest_contains_only_what_its_sender_heard_itself() {
    let mut world = World::new();
    let hearsay = Slot { index: 9, generation: 1 };
    let mut tables = world.tables.clone();
    let _ = tables.admit(ReplicaId(3)).unwrap().beat(hearsay, world.teller_now());
    world.outbox = DigestOutbox::new(&tables, Boot(7));
    assert!(world.exchange(1, 1));
    assert_eq!(world.table.heard(hearsay), None);
}

#[test]
fn a_round_trip_over_one_second_counts_as_missed() {
    let mut world = World::new();
    world.beat(Slot { index: 1, generation: 1 });
    assert!(!world.exchange(500, 501));
    assert!(world.snapshot().is_empty());
    assert_eq!(world.inbox.complete_as_of(), None);
    assert!(world.exchange(500, 500));
}

/// Enough slots for a table of several parts.
const MANY: u32 = 400_000;

/// The parts of the next answer, made without delay.
fn asked(world: &mut World) -> Vec<Vec<u8>> {
    let request = world.inbox.ask(World::listener(world.now));
    world.answer(request)
}

/// The result of the last part that was received, if each came `apart` milliseconds after the one before.
fn deliver(world: &mut World, parts: &[Vec<u8>], apart: u64) -> Result<Progress, InboxError> {
    let mut result = Ok(Progress::Partial);
    for part in parts {
        world.now += apart;
        result = world.inbox.receive(part, World::listener(world.now));
        if result.is_err() {
            break;
        }
    }
    result
}

#[test]
fn a_full_table_may_take_longer_than_a_round_trip_while_its_parts_keep_coming() {
    let mut world = World::new();
    (0..MANY).for_each(|index| world.beat(Slot { index, generation: 1 }));
    world.now += 5_000;
    let asked_at = World::listener(world.now);
    let parts = asked(&mut world);
    assert!(parts.len() as u64 * 900 > ROUND_TRIP_MAX.as_millis() as u64 * 3, "{} parts", parts.len());
    assert_eq!(deliver(&mut world, &parts, 900), Ok(Progress::Complete));
    assert_eq!(world.inbox.complete_as_of(), Some(asked_at), "what was heard since is still to come");
    assert_eq!(world.snapshot().len(), MANY as usize);
    world.assert_no_slot_heard_later_than_it_was();
    world.beat(Slot { index: 1, generation: 1 });
    let next = asked(&mut world);
    assert_eq!(next.len(), 1, "the stream goes on from there");
    assert_eq!(deliver(&mut world, &next, 10), Ok(Progress::Complete));
    world.assert_no_slot_heard_later_than_it_was();
}

#[test]
fn a_full_table_whose_parts_stop_coming_for_one_second_counts_as_missed() {
    let mut world = World::new();
    (0..MANY).for_each(|index| world.beat(Slot { index, generation: 1 }));
    let parts = asked(&mut world);
    assert_eq!(deliver(&mut world, &parts[..1], 1_000), Ok(Progress::Partial));
    assert_eq!(world.inbox.patience(World::listener(world.now)), ROUND_TRIP_MAX);
    let late = deliver(&mut world, &parts[1..], 1_001);
    assert_eq!(late, Err(InboxError::Late { from: TELLER, round_trip: Duration::from_millis(2_001) }));
    assert_eq!(world.inbox.patience(World::listener(world.now)), Duration::ZERO);
}

#[test]
fn a_full_table_is_not_waited_for_longer_than_ten_seconds() {
    let mut world = World::new();
    (0..5 * MANY).for_each(|index| world.beat(Slot { index, generation: 1 }));
    let parts = asked(&mut world);
    let late = deliver(&mut world, &parts, 990);
    assert!(matches!(late, Err(InboxError::Late { round_trip, .. }) if round_trip > FULL_TABLE_MAX), "{late:?}");
    assert_eq!(world.inbox.complete_as_of(), None);
}

#[test]
fn an_incremental_digest_that_takes_over_one_second_is_followed_by_the_full_table() {
    let mut world = World::new();
    assert!(world.exchange(1, 1));
    (0..MANY).for_each(|index| world.beat(Slot { index, generation: 1 }));
    let parts = asked(&mut world);
    assert_eq!(world.inbox.patience(World::listener(world.now)), ROUND_TRIP_MAX);
    let late = deliver(&mut world, &parts, 600);
    assert_eq!(late, Err(InboxError::Late { from: TELLER, round_trip: Duration::from_millis(1_200) }));
    let parts = asked(&mut world);
    assert_eq!(deliver(&mut world, &parts, 600), Ok(Progress::Complete));
    assert_eq!(world.snapshot().len(), MANY as usize);
}

#[test]
fn a_lost_answer_leaves_the_stream_as_it_was() {
    let mut world = World::new();
    (0..MANY).for_each(|index| world.beat(Slot { index, generation: 1 }));
    world.now += 5_000;
    let parts = asked(&mut world);
    assert_eq!(deliver(&mut world, &parts, 1), Ok(Progress::Complete));
    world.step(&Step::LoseAnswer { there: 1 });
    assert_eq!(asked(&mut world).len(), 1);
}

#[test]
fn a_full_table_comes_in_bounded_parts_and_later_digests_are_small() {
    const SLOTS: u32 = 200_000;
    let mut world = World::new();
    (0..SLOTS).for_each(|index| world.beat(Slot { index, generation: 1 }));
    world.now += 30_000;
    let request = world.inbox.ask(World::listener(world.now));
    let parts = world.answer(request);
    assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= PART_MAX), "{}", parts.len());
    let out_of_order = world.inbox.receive(&parts[1], World::listener(world.now));
    assert_eq!(out_of_order, Err(InboxError::OutOfOrder { from: TELLER, expected: 0, found: 1 }));
    let (last, first) = parts.split_last().unwrap();
    for part in first {
        assert_eq!(world.inbox.receive(part, World::listener(world.now)), Ok(Progress::Partial));
        assert_eq!(world.inbox.complete_as_of(), None);
    }
    assert_eq!(world.inbox.receive(last, World::listener(world.now)), Ok(Progress::Complete));
    assert_eq!(world.snapshot().len(), SLOTS as usize);
    world.assert_up_to_date(Duration::ZERO);

    (0..100).for_each(|index| world.beat(Slot { index: index * 1000, generation: 1 }));
    let request = world.inbox.ask(World::listener(world.now));
    let parts = world.answer(request);
    assert_eq!(parts.len(), 1);
    assert!(parts[0].len() < 500, "{}", parts[0].len());
}

#[test]
fn digests_are_cumulative_since_the_last_one_acknowledged() {
    let mut world = World::new();
    world.beat(Slot { index: 1, generation: 1 });
    assert!(world.exchange(1, 1));
    for index in 2..6 {
        world.now += 10_000;
        world.beat(Slot { index, generation: 1 });
        world.step(&Step::LoseAnswer { there: 1 });
    }
    world.now += 10_000;
    assert!(world.exchange(1, 1));
    world.assert_up_to_date(Duration::from_millis(2));
    assert_eq!(world.snapshot().len(), 5);
}

#[test]
fn a_restarted_sender_begins_a_new_numbering_with_a_full_table() {
    let mut world = World::new();
    world.beat(Slot { index: 1, generation: 1 });
    assert!(world.exchange(1, 1));
    world.restart_teller();
    world.beat(Slot { index: 2, generation: 1 });
    world.now += 60_000;
    assert!(world.exchange(1, 1));
    assert_eq!(world.snapshot().len(), 2, "what was heard before the restart stays known");
}
