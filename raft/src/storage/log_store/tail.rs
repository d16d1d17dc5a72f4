//! Tail of the log in memory: where the log begins and ends, and its most recent entries.
//!
//! Entries are visible here before they are durable. An entry that is not yet durable is always here; a durable one may
//! be forgotten, because it can be read from the database.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::tables::Content;
use crate::types::{LogEntry, LogId, Vote};

/// Durable entries kept for readers that are close behind.
const CACHED_ENTRIES_MAX: usize = 4_096;
/// The most bytes of those, as stored; in memory an entry takes about three times that.
const CACHED_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Tail {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
    /// The lowest index that may be present.
    first: u64,
    /// Consecutive, up to `last`.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// Numbers the appends, to know which of them are durable.
    appends: u64,
    durable: u64,
    /// Counts truncations: entries read while one happened may not fit together.
    truncations: u64,
}

#[derive(Debug)]
struct Recent {
    entry: Arc<LogEntry>,
    bytes: usize,
    append: u64,
}

/// An entry with its stored form.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) entry: Arc<LogEntry>,
    pub(super) frame: Vec<u8>,
}

/// The plan for a read: first the entries from the database, then those from memory.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) stored: Range<u64>,
    pub(super) recent: Vec<Arc<LogEntry>>,
    pub(super) truncations: u64,
}

// === impl Tail ===

impl Tail {
    pub(super) fn new(content: &Content) -> Self {
        Self {
            vote: content.vote,
            committed: content.committed,
            purged: content.purged,
            last: content.last,
            first: content.first,
            recent: VecDeque::new(),
            recent_bytes: 0,
            appends: 0,
            durable: 0,
            truncations: 0,
        }
    }

    /// Makes entries visible and numbers the append. They must follow the existing entries.
    pub(super) fn append(&mut self, entries: &[Encoded]) -> io::Result<u64> {
        self.check_consecutive(entries)?;
        self.appends += 1;
        for encoded in entries {
            if self.is_empty() {
                self.first = encoded.entry.log_id.index;
            }
            self.last = Some(encoded.entry.log_id);
            self.recent_bytes += encoded.frame.len();
            self.recent.push_back(Recent {
                entry: Arc::clone(&encoded.entry),
                bytes: encoded.frame.len(),
                append: self.appends,
            });
        }
        self.forget();
        Ok(self.appends)
    }

    /// Everything up to the given append is in the database.
    pub(super) fn made_durable(&mut self, append: u64) {
        self.durable = append;
        self.forget();
    }

    /// Removes the entries after `keep`. Returns the first removed index, if there is one.
    pub(super) fn truncate_after(&mut self, keep: Option<LogId>) -> Option<u64> {
        let from = keep.map_or(0, |id| id.index + 1).max(self.first);
        if self.is_empty() || from > self.last.map_or(0, |id| id.index) {
            return None;
        }
        self.truncations += 1;
        while self.recent.back().is_some_and(|recent| recent.entry.log_id.index >= from) {
            self.recent_bytes -= self.recent.pop_back().map_or(0, |recent| recent.bytes);
        }
        self.last = keep.filter(|id| id.index >= self.first).or(self.purged);
        Some(from)
    }

    /// Removes everything up to and including `upto`, which may be beyond the end.
    pub(super) fn purge(&mut self, upto: LogId) {
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(self.purged);
        self.first = self.first.max(upto.index + 1);
        while self.recent.front().is_some_and(|recent| recent.entry.log_id.index <= upto.index) {
            self.recent_bytes -= self.recent.pop_front().map_or(0, |recent| recent.bytes);
        }
    }

    /// The present part of `start..end`. `bytes_max` bounds the part in memory, which still gets at least one entry.
    pub(super) fn plan(&self, start: u64, end: u64, bytes_max: usize) -> Plan {
        let end = if self.is_empty() { start } else { end.min(self.last.map_or(0, |id| id.index + 1)) };
        let start = start.max(self.first);
        let recent_start = self.recent_start();
        Plan {
            stored: start..end.min(recent_start),
            recent: self.recent_between(start, end, bytes_max),
            truncations: self.truncations,
        }
    }

    fn recent_between(&self, start: u64, end: u64, bytes_max: usize) -> Vec<Arc<LogEntry>> {
        let recent_start = self.recent_start();
        let skip = usize::try_from(start.saturating_sub(recent_start)).unwrap_or(usize::MAX);
        let take = usize::try_from(end.saturating_sub(start.max(recent_start))).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut entries = Vec::new();
        for recent in self.recent.iter().skip(skip).take(take) {
            bytes += recent.bytes;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(Arc::clone(&recent.entry));
        }
        entries
    }

    pub(super) fn truncations(&self) -> u64 {
        self.truncations
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    fn is_empty(&self) -> bool {
        self.last == self.purged
    }

    fn recent_start(&self) -> u64 {
        match self.recent.front() {
            Some(recent) => recent.entry.log_id.index,
            None => self.last.map_or(0, |id| id.index + 1),
        }
    }

    fn check_consecutive(&self, entries: &[Encoded]) -> io::Result<()> {
        // A store that never held an entry begins with the first one it is given.
        let mut expected = self.last.map(|id| id.index + 1);
        for encoded in entries {
            let index = encoded.entry.log_id.index;
            if expected.is_some_and(|expected| expected != index) {
                let text = format!("entry {index} does not follow the log, which ends before {expected:?}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            expected = Some(index + 1);
        }
        Ok(())
    }

    fn forget(&mut self) {
        let too_much = |tail: &Self| tail.recent.len() > CACHED_ENTRIES_MAX || tail.recent_bytes > CACHED_BYTES_MAX;
        while too_much(self) && self.recent.front().is_some_and(|recent| recent.append <= self.durable) {
            self.recent_bytes -= self.recent.pop_front().map_or(0, |recent| recent.bytes);
        }
    }
}
