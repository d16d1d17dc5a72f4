//! Feed of what was applied, for the rest of the replica: the current state, and the changes that led there.
//!
//! The state machine publishes. Readers take a cheap clone of the newest state; watchers follow a bounded ring of
//! changes at their own pace. A watcher that falls off the ring is told so ([`Gone`]) instead of being given a gap.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use muster_lifecycle::change::Change;
use muster_lifecycle::meta::Revision;
use muster_lifecycle::state::State;
use muster_lifecycle::table::Digest;
use muster_lifecycle::time::{ClusterTime, Stamp};
use thiserror::Error;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::storage::state_machine::Publisher;
use crate::types::{LogId, StoredMembership};

/// The changes that a replica keeps for watchers that resume.
pub const RING_CHANGES_MAX: usize = 32_768;
/// The most changes that a watcher is handed at once.
const WATCH_BATCH_MAX: usize = 256;
/// The digests that are kept for comparison with the other replicas.
const DIGESTS_MAX: usize = 64;

/// One moment of the replicated state.
pub struct Published {
    pub state: State,
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    running: RunningTime,
}

/// Cluster time as it runs on this replica. An applied stamp may push it forward, never back. A stamp is as old as its
/// way through the log, and taking it for the present would lose that much with every entry.
#[derive(Debug, Clone, Copy)]
struct RunningTime {
    cluster: ClusterTime,
    /// Time since boot at which `cluster` was the cluster time.
    at: Duration,
}

impl Published {
    pub fn applied_index(&self) -> u64 {
        self.applied.map_or(0, |id| id.index)
    }
}

/// The history a watcher asked for is no longer held here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("revision {} is gone: the oldest change still held follows revision {}; list again and watch from there", requested.0, oldest.0)]
pub struct Gone {
    pub requested: Revision,
    pub oldest: Revision,
}

struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// The revision after which every change is in `changes`.
    floor: Revision,
    digests: VecDeque<(u64, Digest)>,
}

pub struct Feed {
    clock: Arc<dyn Clock>,
    current: ArcSwap<Published>,
    ring: Mutex<Ring>,
    /// The log index applied last. A waiter that wakes up on it looks again.
    applied: watch::Sender<u64>,
}

// === impl RunningTime ===

impl RunningTime {
    fn now(self, boot_time: Duration) -> ClusterTime {
        let since = boot_time.saturating_sub(self.at);
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        ClusterTime(self.cluster.0.saturating_add(since_ms))
    }

    fn pushed_to(self, stamped: ClusterTime, boot_time: Duration) -> Self {
        if stamped > self.now(boot_time) { Self { cluster: stamped, at: boot_time } } else { self }
    }
}

// === impl Feed ===

impl Feed {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let published = Published {
            state: State::new(),
            applied: None,
            membership: StoredMembership::default(),
            running: RunningTime { cluster: ClusterTime(0), at: clock.boot_time() },
        };
        Arc::new(Self {
            clock,
            current: ArcSwap::from_pointee(published),
            ring: Mutex::new(Ring { changes: VecDeque::new(), floor: Revision(0), digests: VecDeque::new() }),
            applied: watch::channel(0).0,
        })
    }

    pub fn current(&self) -> Arc<Published> {
        self.current.load_full()
    }

    /// The stamp for a proposal made now: the highest applied stamp plus the time since it was applied.
    pub fn stamp(&self) -> Stamp {
        let cluster = self.current.load().running.now(self.clock.boot_time());
        Stamp { cluster, wall: self.clock.wall_time() }
    }

    /// Completes once this replica has applied the log up to `index`.
    pub async fn wait_applied(&self, index: u64) {
        if *self.applied.borrow() >= index {
            return;
        }
        let mut applied = self.applied.subscribe();
        // The sender lives as long as `self`, so waiting can only end by the condition.
        let _ = applied.wait_for(|reached| *reached >= index).await;
    }

    /// Follows all changes after `from`. Waits for a revision that this replica has not reached yet.
    pub fn watch(self: &Arc<Self>, from: Revision) -> Result<Watcher, Gone> {
        let applied = self.applied.subscribe();
        let ring = self.ring();
        if from < ring.floor {
            return Err(Gone { requested: from, oldest: ring.floor });
        }
        drop(ring);
        Ok(Watcher { feed: Arc::clone(self), seen: from, applied })
    }

    /// Digests at recent round indexes, newest last.
    pub fn digests(&self) -> Vec<(u64, Digest)> {
        self.ring().digests.iter().copied().collect()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self, state: State, applied: Option<LogId>, membership: &StoredMembership) -> Arc<Published> {
        let current = self.current.load();
        let running = current.running.pushed_to(state.cluster_time(), self.clock.boot_time());
        Arc::new(Published { state, applied, membership: membership.clone(), running })
    }

    fn changes_after(&self, seen: Revision) -> Result<Vec<Arc<Change>>, Gone> {
        let ring = self.ring();
        if seen < ring.floor {
            return Err(Gone { requested: seen, oldest: ring.floor });
        }
        let start = ring.changes.partition_point(|change| change.revision <= seen);
        Ok(ring.changes.range(start..).take(WATCH_BATCH_MAX).cloned().collect())
    }
}

impl Publisher for Feed {
    fn publish(&self, state: State, applied: LogId, membership: &StoredMembership, changes: Vec<Change>) {
        let published = self.published(state, Some(applied), membership);
        let mut ring = self.ring();
        ring.changes.extend(changes.into_iter().map(Arc::new));
        ring.trim();
        self.current.store(published);
        drop(ring);
        self.applied.send_replace(applied.index);
    }

    fn reset(&self, state: State, applied: Option<LogId>, membership: &StoredMembership) {
        let floor = state.revision();
        let published = self.published(state, applied, membership);
        let mut ring = self.ring();
        ring.changes.clear();
        ring.digests.clear();
        ring.floor = floor;
        // Replicas that were restored from different backups differ from the first entry on.
        ring.digests.extend(applied.map(|id| (id.index, published.state.digest())));
        self.current.store(published);
        drop(ring);
        self.applied.send_replace(applied.map_or(0, |id| id.index));
    }

    fn digest_at(&self, index: u64, digest: Digest) {
        let mut ring = self.ring();
        if ring.digests.len() == DIGESTS_MAX {
            ring.digests.pop_front();
        }
        ring.digests.push_back((index, digest));
    }
}

impl Ring {
    fn trim(&mut self) {
        while self.changes.len() > RING_CHANGES_MAX {
            if let Some(dropped) = self.changes.pop_front() {
                self.floor = dropped.revision;
            }
        }
    }
}

/// One reader of the ring of changes.
pub struct Watcher {
    feed: Arc<Feed>,
    seen: Revision,
    applied: watch::Receiver<u64>,
}

// === impl Watcher ===

impl Watcher {
    /// The next changes in order, at least one. Cancel-safe.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Gone> {
        loop {
            self.applied.mark_unchanged();
            let changes = self.feed.changes_after(self.seen)?;
            if let Some(last) = changes.last() {
                self.seen = last.revision;
                return Ok(changes);
            }
            // An error would mean the feed is gone, but `self.feed` keeps it alive.
            let _ = self.applied.changed().await;
        }
    }

    /// The revision up to which everything has been handed out.
    pub fn seen(&self) -> Revision {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use muster_lifecycle::command::{Batch, Position};
    use muster_lifecycle::time::WallTime;

    use super::*;
    use crate::storage::persisted::log_id;

    #[derive(Default)]
    struct HandClock {
        boot_ms: AtomicU64,
        wall_ms: AtomicU64,
    }

    impl Clock for HandClock {
        fn boot_time(&self) -> Duration {
            Duration::from_millis(self.boot_ms.load(Ordering::Relaxed))
        }

        fn wall_time(&self) -> WallTime {
            WallTime(i64::try_from(self.wall_ms.load(Ordering::Relaxed)).unwrap_or(i64::MAX))
        }
    }

    fn apply(feed: &Feed, index: u64, stamp: Option<Stamp>) {
        let mut state = feed.current().state.clone();
        if let Some(stamp) = stamp {
            state.apply(Position { term: 1, index }, &Batch { stamp, commands: Vec::new() });
        }
        feed.publish(state, log_id(1, index), &StoredMembership::default(), Vec::new());
    }

    #[test]
    fn cluster_time_advances_through_entries_without_a_stamp() {
        let clock = Arc::new(HandClock::default());
        let feed = Feed::new(Arc::clone(&clock) as _);
        clock.boot_ms.store(1_000, Ordering::Relaxed);
        apply(&feed, 1, Some(feed.stamp()));
        assert_eq!(feed.stamp().cluster, ClusterTime(1_000));
        // Ten idle minutes, then an election: the new leader's blank entry must not swallow them.
        clock.boot_ms.store(601_000, Ordering::Relaxed);
        apply(&feed, 2, None);
        assert_eq!(feed.stamp().cluster, ClusterTime(601_000));
    }

    #[test]
    fn cluster_time_loses_nothing_between_proposal_and_apply() {
        let clock = Arc::new(HandClock::default());
        let feed = Feed::new(Arc::clone(&clock) as _);
        for index in 1..=100 {
            let stamp = feed.stamp();
            clock.boot_ms.fetch_add(10, Ordering::Relaxed);
            apply(&feed, index, Some(stamp));
        }
        assert_eq!(feed.stamp().cluster, ClusterTime(1_000));
    }

    #[test]
    fn cluster_time_does_not_follow_the_wall_clock() {
        let clock = Arc::new(HandClock::default());
        let feed = Feed::new(Arc::clone(&clock) as _);
        clock.boot_ms.store(5_000, Ordering::Relaxed);
        clock.wall_ms.store(3_600_000, Ordering::Relaxed);
        assert_eq!(feed.stamp(), Stamp { cluster: ClusterTime(5_000), wall: WallTime(3_600_000) });
        clock.wall_ms.store(0, Ordering::Relaxed);
        assert_eq!(feed.stamp().cluster, ClusterTime(5_000));
    }

    #[test]
    fn i_11_a_watcher_that_falls_behind_the_ring_is_told_so() {
        let feed = Feed::new(Arc::new(HandClock::default()));
        let node_changes = (1..=RING_CHANGES_MAX as u64 + 10)
            .map(|revision| Change { revision: Revision(revision), before: None, after: None })
            .collect();
        feed.publish(State::new(), log_id(1, 1), &StoredMembership::default(), node_changes);
        let gone = feed.watch(Revision(9)).err();
        assert_eq!(gone, Some(Gone { requested: Revision(9), oldest: Revision(10) }));
        assert!(feed.watch(Revision(10)).is_ok());
    }
}
