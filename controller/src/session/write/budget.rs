//! The budget of each node's writes: a few at once, then one a second.
//!
//! A report may be large, and its content may be new every time, so a single agent could keep the log and the parser of
//! a replica busy. Beats cost nothing of the budget. A node has one budget for all streams it opens here. A budget that
//! is whole again is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::text::Text;
use tokio::time::Instant;

/// Writes that a node may make at once.
const BURST: u32 = 10;
/// The time in which the budget for one write comes back.
const EACH: Duration = Duration::from_secs(1);
/// The number of budgets below which it is not worth looking for those that are whole again.
const KEPT_MIN: usize = 1_024;

/// The budgets of all nodes that wrote recently: at most twice as many as wrote within [`BURST`] times [`EACH`].
#[derive(Debug)]
pub(crate) struct WriteBudgets(Mutex<Spent>);

#[derive(Debug)]
struct Spent {
    /// When each budget is whole again.
    whole_at: HashMap<Text, Instant>,
    /// The number of budgets at which they are looked through.
    look_through_at: usize,
}

// === impl WriteBudgets ===

impl WriteBudgets {
    /// Spends what one write of `node` costs, or says when that will be possible.
    pub(crate) fn spend(&self, node: &Text, now: Instant) -> Result<(), Instant> {
        let mut spent = self.spent();
        let whole_at = spent.whole_at.get(node).copied().map_or(now, |at| at.max(now));
        let afterwards = whole_at + EACH;
        if afterwards > now + BURST * EACH {
            return Err(afterwards - BURST * EACH);
        }
        spent.whole_at.insert(node.clone(), afterwards);
        spent.forget_whole(now);
        Ok(())
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for WriteBudgets {
    fn default() -> Self {
        Self(Mutex::new(Spent { whole_at: HashMap::new(), look_through_at: KEPT_MIN }))
    }
}

// === impl Spent ===

impl Spent {
    fn forget_whole(&mut self, now: Instant) {
        if self.whole_at.len() >= self.look_through_at {
            self.whole_at.retain(|_, whole_at| *whole_at > now);
            self.look_through_at = KEPT_MIN.max(2 * self.whole_at.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_writes_ten_times_at_once_and_then_once_a_second() {
        let (budgets, now) = (WriteBudgets::default(), Instant::now());
        let (a, b) = (Text::from("a"), Text::from("b"));
        assert!((0..BURST).all(|_| budgets.spend(&a, now).is_ok()));
        assert_eq!(budgets.spend(&a, now), Err(now + EACH));
        assert_eq!(budgets.spend(&b, now), Ok(()), "one node's writes cost another node nothing");
        assert_eq!(budgets.spend(&a, now + EACH), Ok(()));
        assert_eq!(budgets.spend(&a, now + EACH), Err(now + 2 * EACH));
        let rested = now + EACH + BURST * EACH;
        assert!((0..BURST).all(|_| budgets.spend(&a, rested).is_ok()));
        assert!(budgets.spend(&a, rested).is_err(), "rest does not add up beyond the burst");
    }

    #[tokio::test]
    async fn full_budgets_are_removed() {
        let (budgets, now) = (WriteBudgets::default(), Instant::now());
        for number in 0..10 * KEPT_MIN as u32 {
            budgets.spend(&format!("n-{number}").into(), now + number * EACH).unwrap();
        }
        assert!(budgets.spent().whole_at.len() <= KEPT_MIN);
    }
}
