//! Actor counts by kind: shown in metrics, and waited for when a tree is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::ports::{ActorKind, Observer};

pub(crate) struct ActorCounts {
    counts: [AtomicUsize; ActorKind::ALL.len()],
    observer: Arc<dyn Observer>,
    all_gone: Notify,
}

/// Held by an actor for as long as it lives, however it ends.
pub(crate) struct Counted {
    counts: Arc<ActorCounts>,
    kind: ActorKind,
}

// === impl ActorCounts ===

impl ActorCounts {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { counts: Default::default(), observer, all_gone: Notify::new() })
    }

    pub(crate) fn count(self: &Arc<Self>, kind: ActorKind) -> Counted {
        let count = self.counts[kind as usize].fetch_add(1, Ordering::SeqCst) + 1;
        self.observer.actors(kind, count);
        Counted { counts: Arc::clone(self), kind }
    }

    /// Returns when no actor is left.
    pub(crate) async fn all_gone(&self) {
        loop {
            let gone = self.all_gone.notified();
            if self.is_empty() {
                return;
            }
            gone.await;
        }
    }

    fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = self.counts.counts[self.kind as usize].fetch_sub(1, Ordering::SeqCst) - 1;
        self.counts.observer.actors(self.kind, count);
        if count == 0 && self.counts.is_empty() {
            self.counts.all_gone.notify_waiters();
        }
    }
}
