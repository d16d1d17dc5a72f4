//! Count of a door's handshakes under way, which shows whether further callers wait outside.
//!
//! A caller that lost its connection comes back through a handshake. While a door has as many handshakes under way as
//! it may, further callers wait in the kernel's backlog. The replica cannot count those, so "full" is the closest it
//! gets to "queued".

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The handshakes of one door. Clones count the same ones.
#[derive(Debug, Clone, Default)]
pub struct Handshakes(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    running: AtomicUsize,
    /// Zero until the door opens.
    limit: AtomicUsize,
}

/// One handshake under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Underway(Arc<Count>);

// === impl Handshakes ===

impl Handshakes {
    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    /// The door has as many handshakes under way as it may: further callers have to wait.
    pub fn queued(&self) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        limit > 0 && self.running() >= limit
    }

    pub(crate) fn allow(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self) -> Underway {
        self.0.running.fetch_add(1, Ordering::Relaxed);
        Underway(Arc::clone(&self.0))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_queued_while_all_places_are_taken() {
        let handshakes = Handshakes::default();
        assert!(!handshakes.queued(), "a door that is not open has no queue");
        handshakes.allow(2);
        let first = handshakes.begin();
        assert_eq!((handshakes.running(), handshakes.queued()), (1, false));
        let second = handshakes.clone().begin();
        assert_eq!((handshakes.running(), handshakes.queued()), (2, true));
        drop(first);
        assert!(!handshakes.queued());
        drop(second);
        assert_eq!(handshakes.running(), 0);
    }
}
