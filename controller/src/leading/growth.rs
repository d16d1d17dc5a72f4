//! Growth of the supervision tree: how often it failed in a row, why, and how long to pause before the next attempt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The pause before the second attempt in a row; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause does not double more often than this.
const DOUBLINGS_MAX: u32 = 8;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeGrowth(Arc<Mutex<Failures>>);

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    reason: Option<String>,
}

// === impl TreeGrowth ===

impl TreeGrowth {
    pub(crate) fn grew(&self) {
        *self.failures() = Failures::default();
    }

    /// The tree did not grow. Returns how long to wait before this replica does anything else about it.
    pub(crate) fn failed(&self, reason: String) -> Duration {
        let mut failures = self.failures();
        let earlier = failures.in_a_row;
        *failures = Failures { in_a_row: earlier.saturating_add(1), reason: Some(reason) };
        match earlier {
            0 => Duration::ZERO,
            _ => FIRST_PAUSE.saturating_mul(1 << (earlier - 1).min(DOUBLINGS_MAX)).min(LONGEST_PAUSE),
        }
    }

    /// Why this replica could not judge when it last led; `None` if it could.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.failures().reason.clone()
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_acted_on_at_once_and_each_further_one_later() {
        let growth = TreeGrowth::default();
        assert_eq!(growth.trouble(), None);
        let pauses: Vec<u128> = (0..5).map(|_| growth.failed("no".to_owned()).as_millis()).collect();
        assert_eq!(pauses, [0, 500, 1_000, 2_000, 4_000]);
        assert_eq!((0..100).map(|_| growth.failed("no".to_owned())).max(), Some(LONGEST_PAUSE));
        assert_eq!(growth.trouble(), Some("no".to_owned()));
        growth.grew();
        assert_eq!((growth.trouble(), growth.failed("no".to_owned())), (None, Duration::ZERO));
    }
}
