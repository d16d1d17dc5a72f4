//! Evictions go first: successors of the pods of a lost zone are made and placed after the last of them was told to
//! leave, so that its deadline is kept.
//!
//! Not for ever: where evictions do not end, what follows from them goes on beside them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// For how long one rush of evictions holds up the rest.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Precedence {
    /// The beginning of the rush.
    since: Mutex<Option<Instant>>,
}

// === impl Precedence ===

impl Precedence {
    /// Whether evictions are under way, as their clerk sees it.
    pub(crate) fn set(&self, under_way: bool, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = under_way.then(|| since.unwrap_or(now));
    }

    pub(crate) fn is_taken(&self, now: Instant) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| now < since + LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rush_of_evictions_holds_up_the_rest_until_it_ends_or_for_a_while() {
        let (precedence, start) = (Precedence::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!precedence.is_taken(start));
        precedence.set(true, start);
        precedence.set(true, after(9_000));
        assert!(precedence.is_taken(after(9_999)));
        assert!(!precedence.is_taken(after(10_000)), "the rush began at 0, whatever came later");
        precedence.set(false, after(10_100));
        precedence.set(true, after(10_200));
        assert!(precedence.is_taken(after(20_000)), "this is another rush");
        precedence.set(false, after(20_100));
        assert!(!precedence.is_taken(after(20_100)));
    }
}
