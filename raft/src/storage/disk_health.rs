//! Health of the disk under the log: whether it has room, and whether its syncs come back in time.
//!
//! A disk that is nearly full takes no proposals. One whose syncs take seconds takes them, but each write waits for it
//! as long as its replica leads. [`judge`] decides from figures alone; [`DiskHealth`] gathers the figures.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::storage::disk::Disk;
use crate::storage::log_store::{DiskFull, RESERVE_BYTES};

/// Free space from which a disk that was nearly full counts as having room again. Above the reserve, so that a disk at
/// the edge of it does not change its mind with every entry.
const ROOM_AGAIN_BYTES: u64 = RESERVE_BYTES + RESERVE_BYTES / 4;

/// The limits beyond which a disk is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncLimits {
    /// A sync that takes longer is slow.
    pub slow: Duration,
    /// For how long every sync must have been slow.
    pub sustained: Duration,
}

/// The reason why a disk does not take writes as it should.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DiskTrouble {
    #[error(transparent)]
    Full(DiskFull),
    #[error(
        "the disk under {location} is slow: for {} s every sync has taken more than {} ms; see what else uses it, or \
         whether it is failing", .lasting.as_secs(), .limit.as_millis()
    )]
    Slow { location: String, limit: Duration, lasting: Duration },
}

/// The syncs of late, as far as they decide anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentSyncs {
    /// When the sync began that has not come back yet.
    pub under_way: Option<Instant>,
    /// The slow syncs since the last quick one: when the first began, and when the last one came back.
    pub slow: Option<(Instant, Instant)>,
    /// When a sync last came back.
    pub last: Option<Instant>,
}

/// The figures that [`judge`] decides by.
#[derive(Debug, Clone, Copy)]
pub struct DiskFigures {
    /// `None` if the disk cannot say. It counts as having room: the write itself will fail if it has not.
    pub free_bytes: Option<u64>,
    pub syncs: RecentSyncs,
    pub now: Instant,
}

/// The finding of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFinding {
    Well,
    Full {
        free: u64,
    },
    /// For so long, every sync has been slow.
    Slow {
        lasting: Duration,
    },
}

/// Decides whether the disk takes writes. `was_full` is the last finding: leaving that state takes more room than
/// staying out of it.
pub fn judge(figures: &DiskFigures, limits: SyncLimits, was_full: bool) -> DiskFinding {
    let needed = if was_full { ROOM_AGAIN_BYTES } else { RESERVE_BYTES };
    if let Some(free) = figures.free_bytes.filter(|free| *free < needed) {
        return DiskFinding::Full { free };
    }
    match figures.slow_for(limits) {
        Some(lasting) if lasting >= limits.sustained => DiskFinding::Slow { lasting },
        Some(_) | None => DiskFinding::Well,
    }
}

/// Watches one disk. Clones share what they saw.
#[derive(Debug, Clone)]
pub struct DiskHealth {
    disk: Arc<dyn Disk>,
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    limits: SyncLimits,
    syncs: RecentSyncs,
    trouble: Option<DiskTrouble>,
}

// === impl SyncLimits ===

impl SyncLimits {
    pub const DEFAULT: Self = Self { slow: Duration::from_secs(2), sustained: Duration::from_secs(10) };
}

impl Default for SyncLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

// === impl RecentSyncs ===

impl RecentSyncs {
    pub fn began(&mut self, at: Instant) {
        self.under_way = Some(at);
    }

    pub fn came_back(&mut self, at: Instant, limits: SyncLimits) {
        self.last = Some(at);
        let Some(began) = self.under_way.take() else { return };
        let slow = at.saturating_duration_since(began) > limits.slow;
        self.slow = slow.then(|| (self.slow.map_or(began, |(first, _)| first), at));
    }
}

// === impl DiskFigures ===

impl DiskFigures {
    /// The time over which syncs are known to have been slow. Time without any sync proves nothing and does not count.
    fn slow_for(&self, limits: SyncLimits) -> Option<Duration> {
        let hanging = self.syncs.under_way.filter(|began| self.now.saturating_duration_since(*began) > limits.slow);
        let (first, last) = match (self.syncs.slow, hanging) {
            (Some((first, _)), Some(_)) => (first, self.now),
            (None, Some(began)) => (began, self.now),
            (Some(slow), None) => slow,
            (None, None) => return None,
        };
        Some(last.saturating_duration_since(first))
    }
}

// === impl DiskHealth ===

impl DiskHealth {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, watched: Arc::default() }
    }

    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// The last finding, if it was trouble.
    pub fn trouble(&self) -> Option<DiskTrouble> {
        self.watched().trouble.clone()
    }

    pub(crate) fn limit_syncs(&self, limits: SyncLimits) {
        self.watched().limits = limits;
    }

    /// Looks at the disk anew.
    pub(crate) fn look(&self) -> Option<DiskTrouble> {
        let free_bytes = self.free_bytes().ok();
        let mut watched = self.watched();
        let limits = watched.limits;
        let figures = DiskFigures { free_bytes, syncs: watched.syncs, now: Instant::now() };
        let was_full = matches!(watched.trouble, Some(DiskTrouble::Full(_)));
        let location = || self.disk.location();
        watched.trouble = match judge(&figures, limits, was_full) {
            DiskFinding::Well => None,
            DiskFinding::Full { free } => Some(DiskTrouble::Full(DiskFull { location: location(), free })),
            DiskFinding::Slow { lasting } => {
                Some(DiskTrouble::Slow { location: location(), limit: limits.slow, lasting })
            }
        };
        watched.trouble.clone()
    }

    /// Whether no sync has been seen for `quiet`: what is known about the disk is old.
    pub(crate) fn is_unseen_for(&self, quiet: Duration) -> bool {
        let RecentSyncs { under_way, last, .. } = self.watched().syncs;
        under_way.is_none() && last.is_none_or(|last| last.elapsed() >= quiet)
    }

    /// Runs `write`, which syncs, and takes its time.
    pub(crate) fn time<T>(&self, write: impl FnOnce() -> T) -> T {
        self.watched().syncs.began(Instant::now());
        let written = write();
        let mut watched = self.watched();
        let limits = watched.limits;
        watched.syncs.came_back(Instant::now(), limits);
        written
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl DiskTrouble ===

impl DiskTrouble {
    /// Whether both are of one kind, whatever their figures.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const LIMITS: SyncLimits = SyncLimits::DEFAULT;

    /// A sync that began and came back, in tenths of a second; the last may still be under way.
    type Sync = (u64, Option<u64>);

    #[test]
    fn a_disk_is_full_below_the_reserve_and_has_room_again_well_above_it() {
        let full = |free| DiskFinding::Full { free };
        let cases = [
            (None, false, DiskFinding::Well),
            (None, true, DiskFinding::Well),
            (Some(64 * MIB), false, DiskFinding::Well),
            (Some(64 * MIB - 1), false, full(64 * MIB - 1)),
            (Some(0), false, full(0)),
            (Some(64 * MIB), true, full(64 * MIB)),
            (Some(80 * MIB - 1), true, full(80 * MIB - 1)),
            (Some(80 * MIB), true, DiskFinding::Well),
        ];
        for (free_bytes, was_full, expected) in cases {
            let figures = DiskFigures { free_bytes, syncs: RecentSyncs::default(), now: Instant::now() };
            assert_eq!(judge(&figures, LIMITS, was_full), expected, "{free_bytes:?}, was full: {was_full}");
        }
    }

    #[test]
    fn a_disk_is_slow_when_every_sync_of_ten_seconds_took_more_than_two() {
        // The syncs, now, and for how many tenths of a second the disk counts as slow.
        let slow = |tenths: u64| DiskFinding::Slow { lasting: Duration::from_millis(100 * tenths) };
        let cases: &[(&str, &[Sync], u64, DiskFinding)] = &[
            ("no sync at all", &[], 1_000, DiskFinding::Well),
            ("quick ones", &[(0, Some(1)), (50, Some(52)), (100, Some(120))], 130, DiskFinding::Well),
            ("slow ones, not for long", &[(0, Some(30)), (30, Some(60)), (60, Some(99))], 99, DiskFinding::Well),
            ("slow ones for long enough", &[(0, Some(30)), (30, Some(60)), (60, Some(100))], 100, slow(100)),
            ("one that hangs", &[(0, None)], 99, DiskFinding::Well),
            ("one that hangs for long", &[(0, None)], 120, slow(120)),
            ("a slow one, then one that hangs", &[(0, Some(30)), (40, None)], 110, slow(110)),
            ("a slow one, then one under way", &[(0, Some(30)), (100, None)], 110, DiskFinding::Well),
            ("a slow one, then none", &[(0, Some(30))], 1_000, DiskFinding::Well),
            ("a quick one ends it", &[(0, Some(60)), (60, Some(120)), (120, Some(121))], 122, DiskFinding::Well),
            ("a quick one in between", &[(0, Some(90)), (90, Some(91)), (91, Some(120))], 120, DiskFinding::Well),
            ("two seconds are not slow", &[(0, Some(20)), (20, Some(40)), (40, Some(60))], 200, DiskFinding::Well),
        ];
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        for (what, history, now, expected) in cases {
            let mut syncs = RecentSyncs::default();
            for (began, back) in *history {
                syncs.began(at(*began));
                if let Some(back) = back {
                    syncs.came_back(at(*back), LIMITS);
                }
            }
            let figures = DiskFigures { free_bytes: Some(1 << 40), syncs, now: at(*now) };
            assert_eq!(judge(&figures, LIMITS, false), *expected, "{what}");
        }
    }
}
