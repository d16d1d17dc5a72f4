//! Checkpoint: the applied state on disk, so that a restart need not replay the log.
//!
//! The checkpoint is a cache. A thread of its own writes it, never on the path of an acknowledgement. It is believed
//! only if its digest, its store and the log agree with it; otherwise it is moved aside and the state is rebuilt from
//! snapshot and log. Changes are coalesced: the newest state wins, and only the keys that were touched since are
//! written, together with the position they belong to, in one atomic batch.

mod tree;

use std::collections::BTreeSet;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use muster_lifecycle::meta::Uid;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::state::State;
use rustix::process::setpriority_process;

use self::tree::Tree;
use crate::types::{LogId, StoredMembership};

/// Writes are at least this far apart: a record that changes several times meanwhile is written once.
const INTERVAL: Duration = Duration::from_secs(5);
/// This many touched keys are a storm of changes, and then writes are further apart. A fleet that registers or is
/// judged needs the processor, and until the storm is over the log holds everything.
const DIRTY_STORM: usize = 50_000;
const STORM_INTERVAL: Duration = Duration::from_secs(60);
/// After a write the thread rests for this many times as long as the write took, however much waits. In a storm of
/// changes the cache may lag behind, because the log holds them, and must not take more than a small share of a core.
const REST_SHARE: u32 = 9;
/// The thread's niceness, as `nice` counts it: everything else that a replica does is preferred.
const NICENESS: i32 = 10;
/// Touched keys beyond which remembering them costs more than writing everything.
const DIRTY_MAX: usize = 800_000;

/// A state, its position in the log, and the membership there.
#[derive(Debug, Clone)]
pub struct AppliedState {
    pub state: State,
    pub applied: LogId,
    pub membership: StoredMembership,
}

/// The handle. Dropping it writes what is pending and waits for the thread.
pub struct Checkpoint {
    shared: Arc<CheckpointQueue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct CheckpointQueue {
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Default)]
struct Pending {
    newest: Option<AppliedState>,
    dirty: BTreeSet<RecordKey>,
    /// The content on disk is no base for changes: everything is written.
    everything: bool,
    closing: bool,
    /// Set after an error, until the next start.
    disabled: bool,
}

/// The end of the last write, and how long it took.
#[derive(Debug, Clone, Copy)]
struct LastWrite {
    ended: Instant,
    took: Duration,
}

/// The next write.
struct Work {
    moment: AppliedState,
    dirty: BTreeSet<RecordKey>,
    everything: bool,
}

// === impl Checkpoint ===

impl Checkpoint {
    /// Opens the checkpoint in `dir`, and loads its content if that is sound. `store` is the store that it must belong
    /// to. Trouble is logged, not returned: a replica starts without its checkpoint.
    pub fn open(dir: PathBuf, store: Uid) -> (Self, Option<AppliedState>) {
        let shared = Arc::new(CheckpointQueue::default());
        let (report, loaded) = mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("muster-checkpoint".to_owned()).spawn(move || {
            run(dir, store, &for_thread, &report);
        });
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::warn!(%error, "no thread for the checkpoint; restarts replay the log instead");
                shared.disable();
                None
            }
        };
        let moment = loaded.recv().ok().flatten();
        shared.pending().everything = moment.is_none();
        (Self { shared, thread }, moment)
    }

    /// The loaded content is not usable after all: the next write replaces all of it.
    pub fn discard(&self) {
        self.shared.pending().everything = true;
    }

    /// The state has moved on, and these records changed with it.
    pub fn note(&self, moment: AppliedState, touched: impl IntoIterator<Item = RecordKey>) {
        let mut pending = self.shared.pending();
        if pending.disabled {
            return;
        }
        pending.newest = Some(moment);
        if !pending.everything {
            pending.dirty.extend(touched);
            if pending.dirty.len() > DIRTY_MAX {
                pending.everything = true;
                pending.dirty.clear();
            }
        }
        drop(pending);
        self.shared.wake.notify_one();
    }

    /// The state was replaced as a whole.
    pub fn replace(&self, moment: AppliedState) {
        self.discard();
        self.note(moment, []);
    }

    /// Writes what is pending and releases the files.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.shared.pending().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics; if one escaped, there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

// === impl CheckpointQueue ===

impl CheckpointQueue {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disable(&self) {
        let mut pending = self.pending();
        *pending = Pending { disabled: true, closing: pending.closing, ..Pending::default() };
    }

    /// Waits until there is something worth writing. `None` when closing and nothing is left to write.
    fn next_work(&self, last: Option<LastWrite>) -> Option<Work> {
        let mut pending = self.pending();
        loop {
            let wait = last.map_or(Duration::ZERO, |last| last.wait(Instant::now(), pending.touched()));
            let due = wait.is_zero() || pending.closing;
            if due && let Some(moment) = pending.newest.take() {
                let dirty = mem::take(&mut pending.dirty);
                return Some(Work { moment, dirty, everything: mem::take(&mut pending.everything) });
            }
            if pending.closing {
                return None;
            }
            pending = if pending.newest.is_some() {
                self.wake.wait_timeout(pending, wait).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.wake.wait(pending).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

// === impl Pending ===

impl Pending {
    fn touched(&self) -> usize {
        if self.everything { DIRTY_MAX } else { self.dirty.len() }
    }
}

/// The thread that owns the files.
fn run(dir: PathBuf, store: Uid, shared: &CheckpointQueue, report: &mpsc::Sender<Option<AppliedState>>) {
    // The threads that it starts inherit the niceness. If it cannot be set, they compete on equal terms, which costs
    // time but no data.
    let _ = setpriority_process(None, NICENESS);
    let (mut tree, moment) = match Tree::open_or_replace(dir, store) {
        Ok(opened) => opened,
        Err(error) => {
            tracing::warn!(%error, "the checkpoint cannot be used; restarts replay the log until this is repaired");
            return shared.disable();
        }
    };
    if report.send(moment).is_err() {
        return;
    }
    let mut last = None;
    while let Some(work) = shared.next_work(last) {
        let begun = Instant::now();
        if let Err(error) = tree.write(&work) {
            tracing::warn!(%error, "the checkpoint was not written; it stays unused until the next start");
            return shared.disable();
        }
        last = Some(LastWrite { ended: Instant::now(), took: begun.elapsed() });
    }
}

// === impl LastWrite ===

impl LastWrite {
    /// The time until the next write, with this many keys touched.
    fn wait(self, now: Instant, dirty: usize) -> Duration {
        let rest = self.took * REST_SHARE;
        let interval = if dirty >= DIRTY_STORM { STORM_INTERVAL } else { INTERVAL };
        rest.max(interval).saturating_sub(now.saturating_duration_since(self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_delay_a_write_and_no_write_takes_more_than_its_share() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let wait = |took, dirty| LastWrite { ended: now, took: ms(took) }.wait(now + ms(1_000), dirty);
        assert_eq!(wait(10, 1), INTERVAL - ms(1_000));
        assert_eq!(wait(10, DIRTY_STORM), STORM_INTERVAL - ms(1_000));
        assert_eq!(wait(1_000, 1), ms(8_000));
        assert_eq!(wait(10_000, DIRTY_STORM), ms(89_000));
    }
}
