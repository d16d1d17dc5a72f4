//! The packed scan that finds, among many slots, the few for which something changed.
//!
//! A sweep remembers one bit per slot: silent or not. It asks every table, 64 slots at a time, "heard within the grace
//! period?", and compares the answers with those bits. Only where they differ does it look closer: through which
//! replica the node was last heard, and whether that silence is excused. So a healthy fleet costs a few loads and one
//! comparison per slot and table, and nothing is allocated.

use std::ops::Range;
use std::time::Duration;

use muster_lifecycle::node::Slot;
use thiserror::Error;

use crate::blindness::{Blindness, Trace};
use crate::by_replica::{HEARD_THROUGH_MAX, PulseTables};
use crate::table::{CHUNK_SLOTS, CHUNKS_MAX, Chunk, Word, place};
use crate::tick::{TICK_BITS, Tick};
use muster_lifecycle::replica::ReplicaId;

const GROUP: usize = u64::BITS as usize;
const GROUPS_PER_CHUNK: usize = CHUNK_SLOTS / GROUP;

/// The slots of a range of chunks, as one shard watches them.
#[derive(Debug)]
pub struct Sweep {
    chunks: Range<usize>,
    /// The generation under which each slot is held, and since when it is watched; empty if no node holds it.
    held: Box<[Word]>,
    /// One bit per slot, 64 to a word.
    silent: Box<[u64]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PulseState {
    Heard,
    Silent,
}

/// A slot whose pulse state differs from what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PulseChange {
    pub slot: Slot,
    pub hearing: PulseState,
    pub trace: Trace,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SweepError {
    #[error("slot {index} under generation {generation} is not among the slots {first}..{end} of this sweep")]
    NotMine { index: u32, generation: u32, first: usize, end: usize },
}

/// The criteria of one run, worked out once instead of per slot.
struct Bar<'a> {
    tables: &'a PulseTables,
    blindness: &'a Blindness,
    grace: Duration,
    now: Tick,
    /// The first tick that is within grace.
    fresh_from: u64,
    excused: [Option<ReplicaId>; HEARD_THROUGH_MAX],
    /// An excuse that concerns every node is in force: no node falls silent in this run.
    all_excused: bool,
}

// === impl Sweep ===

impl Sweep {
    /// A sweep that watches no node yet. Chunks that no table can have are left out.
    pub fn over(chunks: Range<usize>) -> Self {
        let chunks = chunks.start.min(CHUNKS_MAX)..chunks.end.min(CHUNKS_MAX);
        let slots = chunks.len() * CHUNK_SLOTS;
        Self {
            chunks,
            held: vec![Word::EMPTY; slots].into_boxed_slice(),
            silent: vec![0; slots / GROUP].into_boxed_slice(),
        }
    }

    /// Watches the node that holds `slot`. `believed` is what State says of it, so that only differences are reported.
    /// If no replica has ever heard it, its grace starts at `since`, which may lie ahead to give a starting node
    /// longer.
    pub fn watch(&mut self, slot: Slot, since: Tick, believed: PulseState) -> Result<(), SweepError> {
        let position = self.position(slot)?;
        self.held[position] = Word::pack(slot.generation, since).ok_or_else(|| self.not_mine(slot))?;
        self.believe(position, believed);
        Ok(())
    }

    /// Stops watching the node that holds `slot`; nothing happens if another generation holds it.
    pub fn unwatch(&mut self, slot: Slot) -> Result<(), SweepError> {
        let position = self.position(slot)?;
        if self.held[position].generation() == slot.generation {
            self.held[position] = Word::EMPTY;
            self.believe(position, PulseState::Heard);
        }
        Ok(())
    }

    /// How many of the watched nodes are silent.
    pub fn silent(&self) -> usize {
        self.silent.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Calls `on_change` for every slot that fell silent or was heard again since the last run, in order of slots. A
    /// node already found silent stays so until it is heard: an excuse that begins later does not revive it.
    pub fn run(
        &mut self,
        tables: &PulseTables,
        blindness: &Blindness,
        grace: Duration,
        now: Tick,
        mut on_change: impl FnMut(PulseChange),
    ) {
        let bar = Bar::new(tables, blindness, grace, now);
        for chunk in 0..self.chunks.len() {
            let heard = chunk_of_each(tables, self.chunks.start + chunk);
            for group in chunk * GROUPS_PER_CHUNK..(chunk + 1) * GROUPS_PER_CHUNK {
                self.run_group(group, &heard, &bar, &mut on_change);
            }
        }
    }

    fn run_group(
        &mut self,
        group: usize,
        heard: &[Option<&Chunk>],
        bar: &Bar<'_>,
        on_change: &mut impl FnMut(PulseChange),
    ) {
        let first = group * GROUP;
        let Some(held) = self.held[first..].first_chunk::<GROUP>() else { return };
        let occupied = bits(|bit| held[bit] != Word::EMPTY);
        if occupied == 0 {
            return;
        }
        let fresh = bar.fresh(held, heard, first % CHUNK_SLOTS);
        let mut differing = (fresh ^ !self.silent[group]) & occupied;
        if bar.all_excused {
            differing &= fresh;
        }
        while differing != 0 {
            let bit = differing.trailing_zeros() as usize;
            differing &= differing - 1;
            if let Some(change) = self.look_closer(first + bit, fresh >> bit & 1 == 1, bar) {
                self.believe(first + bit, change.hearing);
                on_change(change);
            }
        }
    }

    fn look_closer(&self, position: usize, fresh: bool, bar: &Bar<'_>) -> Option<PulseChange> {
        let index = u32::try_from(self.chunks.start * CHUNK_SLOTS + position).ok()?;
        let (generation, since) = self.held[position].unpack()?;
        let slot = Slot { index, generation };
        let trace = match bar.tables.last_heard(slot) {
            Some((at, through)) => Trace::Heard { at, through },
            None => Trace::Unplaced { since },
        };
        let hearing = if fresh { PulseState::Heard } else { PulseState::Silent };
        (fresh || bar.is_silent(trace)).then_some(PulseChange { slot, hearing, trace })
    }

    fn believe(&mut self, position: usize, hearing: PulseState) {
        let bit = 1 << (position % GROUP);
        match hearing {
            PulseState::Heard => self.silent[position / GROUP] &= !bit,
            PulseState::Silent => self.silent[position / GROUP] |= bit,
        }
    }

    fn position(&self, slot: Slot) -> Result<usize, SweepError> {
        let found = place(slot.index).filter(|(chunk, _)| self.chunks.contains(chunk));
        let (chunk, cell) = found.ok_or_else(|| self.not_mine(slot))?;
        Ok((chunk - self.chunks.start) * CHUNK_SLOTS + cell)
    }

    fn not_mine(&self, slot: Slot) -> SweepError {
        let (first, end) = (self.chunks.start * CHUNK_SLOTS, self.chunks.end * CHUNK_SLOTS);
        SweepError::NotMine { index: slot.index, generation: slot.generation, first, end }
    }
}

// === impl Bar ===

impl<'a> Bar<'a> {
    fn new(tables: &'a PulseTables, blindness: &'a Blindness, grace: Duration, now: Tick) -> Self {
        let mut excused = [None; HEARD_THROUGH_MAX];
        let replicas = tables.iter().map(|(replica, _)| replica);
        for (place, replica) in excused.iter_mut().zip(replicas) {
            *place = blindness.excused_until(Some(replica), now).map(|_| replica);
        }
        let fresh_from = (now.before(grace).millis() + 1).min(Tick::MAX.millis());
        let all_excused = blindness.excused_until(None, now).is_some();
        Self { tables, blindness, grace, now, fresh_from, excused, all_excused }
    }

    /// One bit per slot of a group: some table heard its holder within grace.
    fn fresh(&self, held: &[Word; GROUP], heard: &[Option<&Chunk>], first: usize) -> u64 {
        // Fresh words of a generation are neighbours, so that one subtraction and one comparison check both parts.
        let lowest = held.map(|word| word.0 >> TICK_BITS << TICK_BITS | self.fresh_from);
        let span = Tick::MAX.millis() - self.fresh_from;
        let per_table =
            heard.iter().flatten().map(|chunk| bits(|bit| chunk.word(first + bit).0.wrapping_sub(lowest[bit]) <= span));
        per_table.fold(0, |fresh, bits| fresh | bits)
    }

    /// Cheap where whole replicas are excused, which is when it is asked most.
    fn is_silent(&self, trace: Trace) -> bool {
        let excused = match trace {
            Trace::Heard { through, .. } => {
                self.excused.contains(&Some(through)) && !self.blindness.was_known_silent(trace)
            }
            Trace::Unplaced { .. } => false,
        };
        !excused && self.blindness.deadline(trace, self.grace, self.now).at <= self.now
    }
}

fn bits(is_set: impl Fn(usize) -> bool) -> u64 {
    (0..GROUP).fold(0, |bits, bit| bits | u64::from(is_set(bit)) << bit)
}

/// The tables' chunks of this number; `None` where a table has not heard anything there.
fn chunk_of_each(tables: &PulseTables, number: usize) -> [Option<&Chunk>; HEARD_THROUGH_MAX] {
    let mut chunks = [None; HEARD_THROUGH_MAX];
    for (place, (_, table)) in chunks.iter_mut().zip(tables.iter()) {
        *place = table.chunk(number);
    }
    chunks
}
