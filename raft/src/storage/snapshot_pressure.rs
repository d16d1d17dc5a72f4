//! Snapshot pressure: decides when a snapshot is worth its cost.
//!
//! It counts bytes, not entries: an entry may hold one command or hundreds. A snapshot is due when the log has grown by
//! more than the size of the last snapshot, so that writing snapshots costs at most as much as writing the log did.

use std::sync::atomic::{AtomicU64, Ordering};

/// Below this a snapshot is never due: replaying so little takes moments.
const LOG_BYTES_MIN: u64 = 16 * 1024 * 1024;

#[derive(Debug)]
pub struct SnapshotPressure {
    /// Bytes ever appended, as far as this process knows.
    appended: AtomicU64,
    /// `appended` when the last snapshot was taken.
    covered: AtomicU64,
    snapshot_bytes: AtomicU64,
}

/// The amount of log that a snapshot in the making will cover.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

// === impl SnapshotPressure ===

impl SnapshotPressure {
    /// The pressure of a store whose log already holds this much.
    pub fn new(log_bytes: u64) -> Self {
        Self { appended: AtomicU64::new(log_bytes), covered: AtomicU64::new(0), snapshot_bytes: AtomicU64::new(0) }
    }

    pub fn log_bytes_since_snapshot(&self) -> u64 {
        self.appended.load(Ordering::Relaxed).saturating_sub(self.covered.load(Ordering::Relaxed))
    }

    pub fn last_snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    pub fn should_snapshot(&self) -> bool {
        self.log_bytes_since_snapshot() > self.last_snapshot_bytes().max(LOG_BYTES_MIN)
    }

    pub(crate) fn appended(&self, bytes: u64) {
        self.appended.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The mark of a snapshot. To be taken at the same moment as its state.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.appended.load(Ordering::Relaxed))
    }

    /// A snapshot became durable.
    pub(crate) fn relieve(&self, mark: Mark, snapshot_bytes: u64) {
        self.covered.fetch_max(mark.0, Ordering::Relaxed);
        self.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
    }

    /// A snapshot was found at start. How much of the log it covers is not known, so none is assumed.
    pub(crate) fn found(&self, snapshot_bytes: u64) {
        self.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_due_when_the_log_outgrew_the_last_one() {
        let pressure = SnapshotPressure::new(0);
        pressure.appended(LOG_BYTES_MIN);
        assert!(!pressure.should_snapshot());
        pressure.appended(1);
        assert!(pressure.should_snapshot());
        let mark = pressure.mark();
        pressure.appended(5);
        pressure.relieve(mark, 2 * LOG_BYTES_MIN);
        assert_eq!(pressure.log_bytes_since_snapshot(), 5);
        pressure.appended(2 * LOG_BYTES_MIN - 5);
        assert!(!pressure.should_snapshot());
        pressure.appended(1);
        assert!(pressure.should_snapshot());
    }
}
