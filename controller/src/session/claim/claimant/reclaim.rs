//! Sessions that are still to be claimed from the present leader.
//!
//! A new leader has more urgent work than to hear of every session, and so have the agents that lost their replica with
//! the old one. So the sessions come after a rest, and one batch at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::session::wake::entry::Entry;
use crate::session::wake::registry::{Registry, SHARDS};

/// The pause before the first batch: a new leader has its first judgements to make.
pub(super) const RECLAIM_REST: Duration = Duration::from_secs(2);
/// The time from one batch to the next: 20,000 sessions a second.
pub(super) const RECLAIM_PERIOD: Duration = Duration::from_millis(50);

pub(super) struct ReclaimQueue {
    /// Shards of the registry that were not read under this leader.
    unvisited: Range<usize>,
    pub(super) unconfirmed: VecDeque<Arc<Entry>>,
    pub(super) next_turn: Instant,
    /// The leader could not be asked meanwhile, so what it granted before may no longer count.
    again: bool,
}

// === impl ReclaimQueue ===

impl ReclaimQueue {
    pub(super) fn none() -> Self {
        Self { unvisited: 0..0, unconfirmed: VecDeque::new(), next_turn: Instant::now(), again: false }
    }

    pub(super) fn all() -> Self {
        Self { unvisited: 0..SHARDS, next_turn: Instant::now() + RECLAIM_REST, ..Self::none() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unvisited.is_empty() && self.unconfirmed.is_empty() && !self.again
    }

    pub(super) fn interrupt(&mut self) {
        (self.again, self.next_turn) = (true, Instant::now() + RECLAIM_REST);
    }

    /// Whether a batch is due. The next one follows a period later.
    pub(super) fn take_turn(&mut self) -> bool {
        let now = Instant::now();
        let is_turn = self.next_turn <= now;
        if is_turn {
            self.next_turn = now + RECLAIM_PERIOD;
        }
        is_turn
    }

    /// The next session that still goes on.
    pub(super) fn next(&mut self, registry: &Registry) -> Option<Arc<Entry>> {
        loop {
            match self.unconfirmed.pop_front() {
                Some(entry) if registry.is_current(&entry) => return Some(entry),
                Some(_) => {}
                None => self.unconfirmed = registry.nodes_of_shard(self.next_part()?).into(),
            }
        }
    }

    fn next_part(&mut self) -> Option<usize> {
        if self.unvisited.is_empty() && std::mem::take(&mut self.again) {
            self.unvisited = 0..SHARDS;
        }
        self.unvisited.next()
    }
}
