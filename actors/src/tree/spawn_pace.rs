//! The pace at which nodes get actors of their own when many lack one: a share of one core, no more.
//!
//! A replica that takes over a million nodes has a million actors to start. At the same time every agent of the
//! replica that died comes back, and the other replicas ask whether there is a leader. Nothing waits for the actors,
//! because a shard judges the nodes that have none. So all shards of a tree start actors in turns, with pauses in
//! between.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Nodes that get their actors in one turn.
pub(crate) const SPAWNED_AT_ONCE: usize = 64;
/// From one turn to the next: a million actors take half a minute.
const TURN: Duration = Duration::from_millis(2);

/// The turns of one tree.
#[derive(Debug, Default)]
pub(crate) struct SpawnPace {
    next: Mutex<Option<Instant>>,
}

// === impl SpawnPace ===

impl SpawnPace {
    /// Takes the next turn and returns how long to wait for it.
    pub(crate) fn wait_for_turn(&self) -> Duration {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = next.map_or(now, |next| next.max(now));
        *next = Some(turn + TURN);
        turn - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn spawn_turns_are_spaced_and_missed_turns_are_not_made_up() {
        let pace = SpawnPace::default();
        let waits: Vec<Duration> = (0..3).map(|_| pace.wait_for_turn()).collect();
        assert_eq!(waits, [Duration::ZERO, TURN, 2 * TURN]);
        tokio::time::sleep(10 * TURN).await;
        assert_eq!([pace.wait_for_turn(), pace.wait_for_turn()], [Duration::ZERO, TURN]);
    }
}
