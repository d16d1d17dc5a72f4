//! Pulse table: one word per slot, with the generation under which its node was last heard, and when.
//!
//! The generation stands above the tick in the word, so that "newer" is one unsigned comparison and a beat is one
//! relaxed `fetch_max`. A later generation wins over an earlier one whatever their ticks. Within a generation the later
//! tick wins. A beat of an earlier generation changes nothing. A plain store is two or three nanoseconds cheaper, but
//! lets a straggler of a deleted node wipe out its successor's first beat. Readers name the generation they mean and
//! see no other.
//!
//! The table grows by whole chunks that never move, so growth needs no lock against beats.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_lifecycle::node::Slot;
use muster_lifecycle::slot::FIRST_GENERATION;

use crate::tick::{TICK_BITS, Tick};

/// Slots per chunk: what one touch of a new region of slots allocates (32 KiB).
pub const CHUNK_SLOTS: usize = 4096;

/// Chunks per table.
pub const CHUNKS_MAX: usize = 4096;

/// Slots per table: 16 million.
pub const SLOTS_MAX: usize = CHUNK_SLOTS * CHUNKS_MAX;

/// The last generation of a slot that can be heard. A slot worn out beyond it must not be given to a node.
pub const GENERATION_MAX: u32 = (1 << (u64::BITS - TICK_BITS)) - 1;

pub struct PulseTable {
    chunks: Box<[OnceLock<Chunk>]>,
}

/// [`CHUNK_SLOTS`] neighbouring cells.
pub struct Chunk(Box<[AtomicU64; CHUNK_SLOTS]>);

/// The result of a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Beat {
    Heard,
    /// The slot has been heard under a later generation: this beat is for a node that is gone.
    Outdated,
    /// No table can hold this index or generation.
    OutOfRange,
}

/// A cell's content: generation above tick. Zero is "never heard", because no generation is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word(pub(crate) u64);

// === impl PulseTable ===

impl PulseTable {
    pub fn new() -> Self {
        Self { chunks: std::iter::repeat_with(OnceLock::new).take(CHUNKS_MAX).collect() }
    }

    /// The node in `slot` was heard at `tick`. Allocates only on the first beat into a chunk.
    pub fn beat(&self, slot: Slot, tick: Tick) -> Beat {
        let (Some(word), Some((chunk, cell))) = (Word::pack(slot.generation, tick), place(slot.index)) else {
            return Beat::OutOfRange;
        };
        let before = self.chunks[chunk].get_or_init(Chunk::new).0[cell].fetch_max(word.0, Ordering::Relaxed);
        if Word(before).generation() > slot.generation { Beat::Outdated } else { Beat::Heard }
    }

    /// When the node that holds `slot` under exactly this generation was last heard.
    pub fn heard(&self, slot: Slot) -> Option<Tick> {
        let (chunk, cell) = place(slot.index)?;
        let word = self.chunk(chunk)?.word(cell);
        word.tick_under(slot.generation)
    }

    /// `None` if nothing in the chunk has ever been heard.
    pub fn chunk(&self, number: usize) -> Option<&Chunk> {
        self.chunks.get(number)?.get()
    }

    /// Every chunk in which something was heard, with its number.
    pub fn chunks(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        self.chunks.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.get()?)))
    }
}

impl Default for PulseTable {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PulseTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PulseTable").field("chunks", &self.chunks().count()).finish()
    }
}

// === impl Chunk ===

impl Chunk {
    fn new() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; CHUNK_SLOTS]))
    }

    /// What was heard in this chunk, in order of slots. `number` is the chunk's own.
    pub fn iter(&self, number: usize) -> impl Iterator<Item = (Slot, Tick)> {
        let first = number * CHUNK_SLOTS;
        self.0.iter().enumerate().filter_map(move |(cell, word)| {
            let (generation, tick) = Word(word.load(Ordering::Relaxed)).unpack()?;
            Some((Slot { index: u32::try_from(first + cell).ok()?, generation }, tick))
        })
    }

    /// `cell` counts from the chunk's first slot and wraps, which costs no check.
    pub(crate) fn word(&self, cell: usize) -> Word {
        Word(self.0[cell % CHUNK_SLOTS].load(Ordering::Relaxed))
    }
}

// === impl Word ===

impl Word {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn pack(generation: u32, tick: Tick) -> Option<Self> {
        let fits = (FIRST_GENERATION..=GENERATION_MAX).contains(&generation);
        fits.then(|| Self(u64::from(generation) << TICK_BITS | tick.millis()))
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> TICK_BITS) as u32
    }

    pub(crate) fn tick_under(self, generation: u32) -> Option<Tick> {
        self.unpack().filter(|(found, _)| *found == generation).map(|(_, tick)| tick)
    }

    pub(crate) fn unpack(self) -> Option<(u32, Tick)> {
        (self != Self::EMPTY).then(|| (self.generation(), Tick::from_packed(self.0)))
    }
}

/// The chunk of a slot, and the cell in it.
pub(crate) fn place(index: u32) -> Option<(usize, usize)> {
    let index = usize::try_from(index).ok()?;
    (index < SLOTS_MAX).then_some((index / CHUNK_SLOTS, index % CHUNK_SLOTS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::since_boot(Duration::from_millis(millis))
    }

    fn slot(index: u32, generation: u32) -> Slot {
        Slot { index, generation }
    }

    #[test]
    fn a_beat_is_heard_under_its_own_generation_only() {
        let table = PulseTable::new();
        assert_eq!(table.heard(slot(5, 2)), None);
        assert_eq!(table.beat(slot(5, 2), at(10)), Beat::Heard);
        assert_eq!(table.heard(slot(5, 2)), Some(at(10)));
        assert_eq!(table.heard(slot(5, 1)), None);
        assert_eq!(table.heard(slot(5, 3)), None);
    }

    #[test]
    fn a_later_generation_wins_even_with_an_earlier_tick() {
        let table = PulseTable::new();
        assert_eq!(table.beat(slot(5, 1), at(50)), Beat::Heard);
        assert_eq!(table.beat(slot(5, 2), at(10)), Beat::Heard);
        assert_eq!(table.beat(slot(5, 1), at(60)), Beat::Outdated);
        assert_eq!(table.heard(slot(5, 2)), Some(at(10)));
        assert_eq!(table.heard(slot(5, 1)), None);
    }

    #[test]
    fn within_a_generation_time_never_goes_back() {
        let table = PulseTable::new();
        let _ = table.beat(slot(5, 1), at(50));
        assert_eq!(table.beat(slot(5, 1), at(40)), Beat::Heard);
        assert_eq!(table.heard(slot(5, 1)), Some(at(50)));
    }

    #[test]
    fn a_slot_out_of_range_is_refused() {
        let table = PulseTable::new();
        let beyond = u32::try_from(SLOTS_MAX).unwrap();
        for bad in [slot(beyond, 1), slot(u32::MAX, 1), slot(0, 0), slot(0, GENERATION_MAX + 1), slot(0, u32::MAX)] {
            assert_eq!(table.beat(bad, at(1)), Beat::OutOfRange, "{bad:?}");
            assert_eq!(table.heard(bad), None, "{bad:?}");
        }
        assert_eq!(table.chunks().count(), 0);
        for good in [slot(beyond - 1, 1), slot(0, GENERATION_MAX)] {
            assert_eq!(table.beat(good, Tick::MAX), Beat::Heard, "{good:?}");
            assert_eq!(table.heard(good), Some(Tick::MAX), "{good:?}");
        }
    }

    #[test]
    fn chunks_list_what_was_heard_in_order() {
        let table = PulseTable::new();
        for index in [9000, 3, 4095, 4096] {
            let _ = table.beat(slot(index, 1), at(u64::from(index)));
        }
        let listed: Vec<_> = table.chunks().flat_map(|(number, chunk)| chunk.iter(number)).collect();
        assert_eq!(listed, [3, 4095, 4096, 9000].map(|index| (slot(index, 1), at(u64::from(index)))));
    }

    #[test]
    fn growth_under_concurrent_beats_loses_none_and_shows_no_torn_word() {
        const THREADS: u32 = 4;
        const SLOTS: u32 = 20_000;
        let table = PulseTable::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let table = &table;
                // All threads touch every slot, each with ticks of its own, so that they race for chunks and cells.
                scope.spawn(move || {
                    for index in 0..SLOTS {
                        let _ = table.beat(slot(index, 1 + index % 3), at(u64::from(thread * SLOTS + index)));
                    }
                });
            }
            scope.spawn(|| {
                for (slot, tick) in table.chunks().flat_map(|(number, chunk)| chunk.iter(number)) {
                    assert_eq!(slot.generation, 1 + slot.index % 3);
                    assert_eq!((tick.millis() - Tick::BOOT.millis()) % u64::from(SLOTS), u64::from(slot.index));
                }
            });
        });
        for index in 0..SLOTS {
            let newest = at(u64::from((THREADS - 1) * SLOTS + index));
            assert_eq!(table.heard(slot(index, 1 + index % 3)), Some(newest));
        }
    }
}
