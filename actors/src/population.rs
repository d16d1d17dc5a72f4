//! How many actors there are of each kind, so that it can be shown, and so that whoever prunes a tree knows when the
//! last one is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::surroundings::{ActorKind, Observer};

pub(crate) struct Population {
    counts: [AtomicUsize; ActorKind::ALL.len()],
    observer: Arc<dyn Observer>,
    extinct: Notify,
}

/// Held by an actor for as long as it lives, however it ends.
pub(crate) struct Presence {
    population: Arc<Population>,
    kind: ActorKind,
}

// === impl Population ===

impl Population {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { counts: Default::default(), observer, extinct: Notify::new() })
    }

    pub(crate) fn enter(self: &Arc<Self>, kind: ActorKind) -> Presence {
        let count = self.counts[kind as usize].fetch_add(1, Ordering::SeqCst) + 1;
        self.observer.population(kind, count);
        Presence { population: Arc::clone(self), kind }
    }

    /// Returns when nobody is left.
    pub(crate) async fn extinction(&self) {
        loop {
            let extinct = self.extinct.notified();
            if self.is_extinct() {
                return;
            }
            extinct.await;
        }
    }

    fn is_extinct(&self) -> bool {
        self.counts.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let count = self.population.counts[self.kind as usize].fetch_sub(1, Ordering::SeqCst) - 1;
        self.population.observer.population(self.kind, count);
        if count == 0 && self.population.is_extinct() {
            self.population.extinct.notify_waiters();
        }
    }
}
