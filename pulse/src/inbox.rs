//! DigestInbox of a digest stream: applies what one peer heard itself, and nothing else.
//!
//! Ages are subtracted from the moment of the *request*, which came before the peer read its table. So a beat is never
//! dated later than it happened, however long the answer took, and at most one round trip earlier.
//!
//! A digest that builds on an earlier one and takes longer than [`ROUND_TRIP_MAX`] is given up: it says too little
//! about now. A full table may be large or come over a slow line, and giving it up would only mean asking for it again.
//! So it may go on for [`FULL_TABLE_MAX`] while its parts keep coming. The replica that waits for it is blind meanwhile
//! and must say so.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::digest::{Boot, DigestError, DigestId, DigestRequest, Entries, Header};
use crate::table::PulseTable;
use crate::tick::Tick;
use muster_lifecycle::replica::ReplicaId;

/// An answer counts as missed when this has passed since the request, or since the last part of a full table.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// A full table that is not complete by then counts as missed, even if its parts kept coming.
pub const FULL_TABLE_MAX: Duration = Duration::from_secs(10);

/// One per peer that this replica pulls from.
#[derive(Debug)]
pub struct DigestInbox {
    replica: ReplicaId,
    table: Arc<PulseTable>,
    asked: u64,
    awaited: Option<Awaited>,
    applied: Option<DigestId>,
    complete_as_of: Option<Tick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More parts of this digest are to come.
    Partial,
    /// The table holds all that the peer had heard when it was asked.
    Complete,
}

#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum InboxError {
    #[error(transparent)]
    Malformed(#[from] DigestError),
    #[error("replica {from} sent a digest of replica {about}'s receipts: only first-hand receipts count")]
    Echo { from: ReplicaId, about: ReplicaId },
    #[error("replica {from} answered request {answered}, but {asked} is the one in flight: the answer is dropped")]
    Unasked { from: ReplicaId, answered: u64, asked: u64 },
    #[error(
        "replica {from} took {round_trip:?} to answer; over {ROUND_TRIP_MAX:?}, or {FULL_TABLE_MAX:?} for a full \
         table, counts as missed"
    )]
    Late { from: ReplicaId, round_trip: Duration },
    #[error("replica {from} sent part {found} of a digest where part {expected} was due: the digest is dropped")]
    OutOfOrder { from: ReplicaId, expected: u64, found: u64 },
    #[error("replica {from} sent digest {sequence} on top of {base}, which is not what was acknowledged: ask anew")]
    Gap { from: ReplicaId, sequence: u64, base: u64 },
}

/// The request in flight, and how much of its answer is here.
#[derive(Debug)]
struct Awaited {
    asked_at: Tick,
    next_part: u64,
    digest: Option<DigestId>,
    /// When the last part came, if it was one of a full table.
    full_table_at: Option<Tick>,
}

// === impl DigestInbox ===

impl DigestInbox {
    /// Listens to `replica`, whose identity the caller has verified, into the table kept for it.
    pub fn new(replica: ReplicaId, table: Arc<PulseTable>) -> Self {
        Self { replica, table, asked: 0, awaited: None, applied: None, complete_as_of: None }
    }

    /// The next request, made at `now`. An answer in flight is given up. If a part of it has arrived already, it is too
    /// large to come in time as an addition to an earlier digest, and the next one would be larger. So a full table is
    /// asked for, which is given longer.
    pub fn ask(&mut self, now: Tick) -> DigestRequest {
        if self.awaited.take().is_some_and(|given_up| given_up.next_part > 0) {
            self.restart();
        }
        self.asked += 1;
        self.awaited = Some(Awaited { asked_at: now, next_part: 0, digest: None, full_table_at: None });
        DigestRequest { asked: self.asked, applied: self.applied }
    }

    /// How much longer the peer's next message may take to arrive: a part, or the end of a complete digest.
    pub fn patience(&self, now: Tick) -> Duration {
        self.awaited.as_ref().map_or(ROUND_TRIP_MAX, |awaited| awaited.deadline().elapsed_since(now))
    }

    /// A new stream: the next answer will be a full table.
    pub fn restart(&mut self) {
        self.awaited = None;
        self.applied = None;
        self.complete_as_of = None;
    }

    /// The moment as of which the table is complete on this stream: that of the last request that was answered in full.
    pub fn complete_as_of(&self) -> Option<Tick> {
        self.complete_as_of
    }

    /// The life of the peer whose digest was last applied whole on this stream.
    pub fn boot(&self) -> Option<Boot> {
        self.applied.map(|applied| applied.boot)
    }

    /// One part that arrived at `now`. On any error nothing of it is applied.
    pub fn receive(&mut self, bytes: &[u8], now: Tick) -> Result<Progress, InboxError> {
        let (header, entries) = Header::take(bytes)?;
        let asked_at = self.check(&header, now)?;
        for entry in entries.clone() {
            entry?;
        }
        apply(&self.table, entries, asked_at);
        Ok(self.advance(&header, asked_at, now))
    }

    /// When the request that this part answers was made.
    fn check(&self, header: &Header, now: Tick) -> Result<Tick, InboxError> {
        let from = self.replica;
        if header.replica != from {
            return Err(InboxError::Echo { from, about: header.replica });
        }
        let Some(awaited) = self.awaited.as_ref().filter(|_| header.asked == self.asked) else {
            return Err(InboxError::Unasked { from, answered: header.asked, asked: self.asked });
        };
        if now > awaited.deadline() {
            return Err(InboxError::Late { from, round_trip: now.elapsed_since(awaited.asked_at) });
        }
        if header.part != awaited.next_part {
            return Err(InboxError::OutOfOrder { from, expected: awaited.next_part, found: header.part });
        }
        if !self.continues(header) || awaited.digest.is_some_and(|digest| digest != name(header)) {
            return Err(InboxError::Gap { from, sequence: header.sequence, base: header.base });
        }
        Ok(awaited.asked_at)
    }

    fn continues(&self, header: &Header) -> bool {
        let same_life = self.applied.filter(|applied| applied.boot == header.boot);
        match same_life {
            Some(applied) => header.sequence > applied.sequence && [0, applied.sequence].contains(&header.base),
            None => header.base == 0,
        }
    }

    fn advance(&mut self, header: &Header, asked_at: Tick, now: Tick) -> Progress {
        if header.last {
            self.applied = Some(name(header));
            self.complete_as_of = Some(asked_at);
            self.awaited = None;
            return Progress::Complete;
        }
        if let Some(awaited) = &mut self.awaited {
            awaited.next_part += 1;
            awaited.digest = Some(name(header));
            awaited.full_table_at = (header.base == 0).then_some(now);
        }
        Progress::Partial
    }
}

// === impl Awaited ===

impl Awaited {
    /// DigestParts that arrive later are not used.
    fn deadline(&self) -> Tick {
        match self.full_table_at {
            Some(last_part) => last_part.after(ROUND_TRIP_MAX).min(self.asked_at.after(FULL_TABLE_MAX)),
            None => self.asked_at.after(ROUND_TRIP_MAX),
        }
    }
}

fn name(header: &Header) -> DigestId {
    DigestId { boot: header.boot, sequence: header.sequence }
}

/// A beat from before this replica's time began says no more than none; one of an outdated generation says nothing.
fn apply(table: &PulseTable, entries: Entries<'_>, asked_at: Tick) {
    for (slot, age) in entries.flatten() {
        if let Some(heard) = asked_at.checked_before(age.duration()) {
            let _ = table.beat(slot, heard);
        }
    }
}
