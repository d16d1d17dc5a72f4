//! Digests: the bytes by which one replica tells another about its own receipts.
//!
//! A digest answers one request and comes in parts of bounded size. Every part names the replica that heard
//! (`replica`), its life (`boot`), the digest's number in that life (`sequence`), the digest it builds on (`base`, zero
//! for a full table) and the request it answers (`asked`). Then follows an entry for each slot, in ascending order: its
//! distance from the slot before, its generation unless that is the first, and the age of its last beat. Ages are
//! rounded up, never down: a node may look silent for a quantum longer than it was, but not shorter. Three bytes per
//! slot are usual.

use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::slot::FIRST_GENERATION;
use thiserror::Error;

use crate::table::{GENERATION_MAX, SLOTS_MAX};
use crate::tick::Tick;
use crate::varint;
use muster_lifecycle::replica::ReplicaId;

/// The longest part, in bytes.
pub const PART_MAX: usize = 256 * 1024;

/// The unit in which ages are told.
pub const AGE_QUANTUM: Duration = Duration::from_millis(QUANTUM_MILLIS);

const QUANTUM_MILLIS: u64 = 10;

/// Older beats are not told: the receiver could not tell them from none.
const AGE_QUANTA_MAX: u64 = (1 << 38) / QUANTUM_MILLIS;

/// An upper bound of every entry's length: three numbers.
pub(crate) const ENTRY_MAX: usize = 3 * varint::VARINT_MAX;

const VERSION: u8 = 1;

/// One life of a replica's process; drawn at random when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Boot(pub u64);

/// A replica's request for a peer's next digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestRequest {
    /// Comes back in the answer, so that an answer stuck in a buffer cannot pass for a fresh one.
    pub asked: u64,
    /// The last digest applied completely, which this request acknowledges. `None` starts a new stream.
    pub applied: Option<DigestId>,
}

/// A digest, named across restarts of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestId {
    pub boot: Boot,
    pub sequence: u64,
}

#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum DigestError {
    #[error("digest format {0} is unknown: this replica reads format {VERSION}, upgrade the older of the two")]
    Version(u8),
    #[error("digest part of {0} bytes is over the limit of {PART_MAX}")]
    TooLong(usize),
    #[error("digest part has no valid header: it was damaged or cut off, ask again")]
    Header,
    #[error("digest part has no valid entry {entry}: it was damaged or cut off, ask again")]
    Entry { entry: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) replica: ReplicaId,
    pub(crate) boot: Boot,
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    pub(crate) asked: u64,
    pub(crate) part: u64,
    pub(crate) last: bool,
}

/// An age in quanta, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(u64);

/// Writes entries behind a header. Slots must come in ascending order.
pub(crate) struct EntryWriter {
    next_index: u32,
}

/// Reads what [`EntryWriter`] wrote; fused after an error.
#[derive(Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    next_index: u64,
    read: usize,
}

// === impl Header ===

impl Header {
    const LAST_OFFSET_FROM_ENTRIES: usize = 1;

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        buffer.push(VERSION);
        varint::put(buffer, self.replica.0);
        buffer.extend(self.boot.0.to_le_bytes());
        for number in [self.sequence, self.base, self.asked, self.part] {
            varint::put(buffer, number);
        }
        buffer.push(u8::from(self.last));
    }

    /// Set afterwards: whether a part is the last is known only once its entries are written.
    pub(crate) fn mark_last(buffer: &mut [u8], entries_at: usize) {
        buffer[entries_at - Self::LAST_OFFSET_FROM_ENTRIES] = 1;
    }

    /// The header, and the entries behind it, not yet looked at.
    pub(crate) fn take(bytes: &[u8]) -> Result<(Self, Entries<'_>), DigestError> {
        if bytes.len() > PART_MAX {
            return Err(DigestError::TooLong(bytes.len()));
        }
        let (&version, mut rest) = bytes.split_first().ok_or(DigestError::Header)?;
        if version != VERSION {
            return Err(DigestError::Version(version));
        }
        let header = Self::take_fields(&mut rest).ok_or(DigestError::Header)?;
        Ok((header, Entries { bytes: rest, next_index: 0, read: 0 }))
    }

    fn take_fields(rest: &mut &[u8]) -> Option<Self> {
        let replica = ReplicaId(varint::take(rest)?);
        let (boot, after) = rest.split_first_chunk()?;
        *rest = after;
        let header = Self {
            replica,
            boot: Boot(u64::from_le_bytes(*boot)),
            sequence: varint::take(rest)?,
            base: varint::take(rest)?,
            asked: varint::take(rest)?,
            part: varint::take(rest)?,
            last: take_flag(rest)?,
        };
        (header.base < header.sequence).then_some(header)
    }
}

fn take_flag(rest: &mut &[u8]) -> Option<bool> {
    let (&flag, after) = rest.split_first()?;
    *rest = after;
    (flag <= 1).then_some(flag == 1)
}

// === impl Age ===

impl Age {
    /// `None` if the age is beyond what is told.
    pub(crate) fn between(heard: Tick, now: Tick) -> Option<Self> {
        let quanta = now.millis().saturating_sub(heard.millis()).div_ceil(QUANTUM_MILLIS);
        (quanta <= AGE_QUANTA_MAX).then_some(Self(quanta))
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0 * QUANTUM_MILLIS)
    }
}

// === impl EntryWriter ===

impl EntryWriter {
    pub(crate) fn new() -> Self {
        Self { next_index: 0 }
    }

    pub(crate) fn put(&mut self, buffer: &mut Vec<u8>, slot: Slot, age: Age) {
        let gap = u64::from(slot.index - self.next_index);
        self.next_index = slot.index + 1;
        let reused = slot.generation != FIRST_GENERATION;
        varint::put(buffer, gap << 1 | u64::from(reused));
        if reused {
            varint::put(buffer, u64::from(slot.generation));
        }
        varint::put(buffer, age.0);
    }
}

// === impl Entries ===

impl Entries<'_> {
    fn take(&mut self) -> Option<(Slot, Age)> {
        let tagged = varint::take(&mut self.bytes)?;
        let index = self.next_index.checked_add(tagged >> 1).filter(|index| *index < SLOTS_MAX as u64)?;
        let generation = if tagged & 1 == 1 { self.take_generation()? } else { FIRST_GENERATION };
        let age = varint::take(&mut self.bytes).filter(|quanta| *quanta <= AGE_QUANTA_MAX)?;
        self.next_index = index + 1;
        Some((Slot { index: u32::try_from(index).ok()?, generation }, Age(age)))
    }

    fn take_generation(&mut self) -> Option<u32> {
        let generation = u32::try_from(varint::take(&mut self.bytes)?).ok()?;
        (FIRST_GENERATION + 1..=GENERATION_MAX).contains(&generation).then_some(generation)
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(Slot, Age), DigestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let entry = self.read;
        self.read += 1;
        let taken = self.take();
        if taken.is_none() {
            self.bytes = &[];
        }
        Some(taken.ok_or(DigestError::Entry { entry }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_up_and_bounded() {
        let heard = Tick::BOOT;
        for (millis, told) in [(0, 0), (1, 10), (10, 10), (11, 20)] {
            let age = Age::between(heard, heard.after(Duration::from_millis(millis))).unwrap();
            assert_eq!(age.duration(), Duration::from_millis(told), "{millis}");
        }
        assert_eq!(
            Age::between(heard.after(AGE_QUANTUM), heard),
            Some(Age(0)),
            "a beat during the scan has no age yet"
        );
        assert_eq!(Age::between(Tick::ZERO, Tick::MAX), None);
    }

    #[test]
    fn an_entry_takes_three_bytes_in_a_dense_young_fleet() {
        let (mut buffer, mut writer) = (Vec::new(), EntryWriter::new());
        for index in 0..1000 {
            writer.put(&mut buffer, Slot { index, generation: FIRST_GENERATION }, Age(900));
        }
        assert_eq!(buffer.len(), 3000);
    }

    #[test]
    fn an_entry_out_of_range_is_refused() {
        let cases: [(&str, &[u64]); 5] = [
            ("index", &[(SLOTS_MAX as u64) << 1, 0]),
            ("generation zero", &[1, 0, 0]),
            ("the first generation spelt out", &[1, 1, 0]),
            ("generation", &[1, u64::from(GENERATION_MAX) + 1, 0]),
            ("age", &[0, AGE_QUANTA_MAX + 1]),
        ];
        for (what, numbers) in cases {
            let mut buffer = Vec::new();
            numbers.iter().for_each(|number| varint::put(&mut buffer, *number));
            let mut entries = Entries { bytes: &buffer, next_index: 0, read: 0 };
            assert_eq!(entries.next(), Some(Err(DigestError::Entry { entry: 0 })), "{what}");
            assert_eq!(entries.next(), None, "{what}");
        }
    }
}
