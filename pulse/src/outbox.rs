//! DigestOutbox of a digest stream: tells one peer what it does not know yet of this replica's own receipts.
//!
//! The outbox finds what changed since a digest without remembering what was in it. A cell's tick is the moment of its
//! beat, so a beat heard after the acknowledged digest was made has a later tick. A session may be held up between
//! reading the clock and storing the beat; [`STRAGGLER`] is how long such a beat may take and still be told at once. A
//! beat held up longer is told with the node's next beat, or with the next full table.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::Slot;

use crate::by_replica::PulseTables;
use crate::digest::{Age, Boot, DigestRequest, ENTRY_MAX, EntryWriter, Header, PART_MAX};
use crate::table::{CHUNK_SLOTS, CHUNKS_MAX, PulseTable};
use crate::tick::Tick;
use muster_lifecycle::replica::ReplicaId;

/// How far a digest reaches back behind the one it builds on.
pub const STRAGGLER: Duration = Duration::from_secs(1);

/// One per peer that pulls from this replica.
#[derive(Debug)]
pub struct DigestOutbox {
    replica: ReplicaId,
    boot: Boot,
    own: Arc<PulseTable>,
    sequence: u64,
    sent: Option<Mark>,
    acknowledged: Option<Mark>,
}

/// One digest on its way out, part by part. It holds no borrow, so it can outlive the call that made it.
#[derive(Debug)]
pub struct DigestParts {
    own: Arc<PulseTable>,
    header: Header,
    now: Tick,
    since: Tick,
    next_slot: usize,
    done: bool,
}

/// The moment at which a digest was made.
#[derive(Debug, Clone, Copy)]
struct Mark {
    sequence: u64,
    made: Tick,
}

// === impl DigestOutbox ===

impl DigestOutbox {
    /// The outbox tells this replica's own table and no other: it cannot pass on what peers told.
    pub fn new(tables: &PulseTables, boot: Boot) -> Self {
        let own = Arc::clone(tables.own());
        Self { replica: tables.me(), boot, own, sequence: 0, sent: None, acknowledged: None }
    }

    /// The digest that answers `request`: everything heard since the one it acknowledges, or the full table if that one
    /// is not known here. `now` must be read after the request arrived, or the ages would be those of a moment before
    /// it was made.
    pub fn answer(&mut self, request: DigestRequest, now: Tick) -> DigestParts {
        let base = self.acknowledge(request);
        self.sequence += 1;
        self.sent = Some(Mark { sequence: self.sequence, made: now });
        let header = Header {
            replica: self.replica,
            boot: self.boot,
            sequence: self.sequence,
            base: base.map_or(0, |mark| mark.sequence),
            asked: request.asked,
            part: 0,
            last: false,
        };
        let since = base.map_or(Tick::ZERO, |mark| mark.made.before(STRAGGLER));
        DigestParts { own: Arc::clone(&self.own), header, now, since, next_slot: 0, done: false }
    }

    fn acknowledge(&mut self, request: DigestRequest) -> Option<Mark> {
        let applied = request.applied.filter(|applied| applied.boot == self.boot)?.sequence;
        if let Some(sent) = self.sent.filter(|sent| sent.sequence == applied) {
            self.acknowledged = Some(sent);
        }
        self.acknowledged.filter(|mark| mark.sequence == applied)
    }
}

// === impl DigestParts ===

impl DigestParts {
    /// Overwrites `buffer` with the next part; `false` when the digest is complete. There is always at least one part.
    pub fn next_into(&mut self, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        if self.done {
            return false;
        }
        self.header.put(buffer);
        let entries_at = buffer.len();
        self.done = self.fill(buffer);
        if self.done {
            Header::mark_last(buffer, entries_at);
        }
        self.header.part += 1;
        true
    }

    /// Whether everything fitted.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> bool {
        let mut writer = EntryWriter::new();
        while self.next_slot / CHUNK_SLOTS < CHUNKS_MAX {
            if !self.fill_from_chunk(buffer, &mut writer) {
                return false;
            }
        }
        true
    }

    /// Goes on where the last part stopped, to the end of that chunk if there is room.
    fn fill_from_chunk(&mut self, buffer: &mut Vec<u8>, writer: &mut EntryWriter) -> bool {
        let number = self.next_slot / CHUNK_SLOTS;
        let end = (number + 1) * CHUNK_SLOTS;
        let Some(chunk) = self.own.chunk(number) else {
            self.next_slot = end;
            return true;
        };
        for position in self.next_slot..end {
            if buffer.len() + ENTRY_MAX > PART_MAX {
                self.next_slot = position;
                return false;
            }
            let news = chunk.word(position).unpack().filter(|(_, heard)| *heard >= self.since);
            let Some((generation, heard)) = news else { continue };
            if let Some(age) = Age::between(heard, self.now) {
                writer.put(buffer, Slot { index: position as u32, generation }, age);
            }
        }
        self.next_slot = end;
        true
    }
}
