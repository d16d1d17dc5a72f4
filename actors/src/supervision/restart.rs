//! Restarts: how long to wait before a child that died is rebuilt, and when it is over its budget.

use std::collections::VecDeque;
use std::time::Duration;

use ractor::{ActorId, SupervisionEvent};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Restarts within [`WINDOW`] after which a child is over its budget.
const BUDGET: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// The recent deaths of one child.
#[derive(Debug, Default)]
pub(crate) struct DeathRecord {
    deaths: VecDeque<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    RestartAfter(Duration),
    /// The supervisor says what follows.
    OverBudget,
}

/// Which actor died, and why, if the event is a death.
pub(crate) fn death_of(event: SupervisionEvent) -> Option<(ActorId, String)> {
    match event {
        SupervisionEvent::ActorFailed(who, error) => Some((who.get_id(), error.to_string())),
        SupervisionEvent::ActorTerminated(who, _, reason) => {
            Some((who.get_id(), reason.unwrap_or_else(|| "it stopped by itself".to_owned())))
        }
        SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
    }
}

// === impl DeathRecord ===

impl DeathRecord {
    pub(crate) fn died(&mut self, now: Instant) -> RestartDecision {
        self.forget_before(now);
        self.deaths.push_back(now);
        let earlier = self.deaths.len() - 1;
        if earlier < BUDGET {
            return RestartDecision::RestartAfter(FIRST_PAUSE.saturating_mul(1 << earlier).min(LONGEST_PAUSE));
        }
        self.deaths.pop_front();
        RestartDecision::OverBudget
    }

    pub(crate) fn is_clean(&mut self, now: Instant) -> bool {
        self.forget_before(now);
        self.deaths.is_empty()
    }

    fn forget_before(&mut self, now: Instant) {
        while self.deaths.front().is_some_and(|death| now.duration_since(*death) > WINDOW) {
            self.deaths.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(millis: u64) -> RestartDecision {
        RestartDecision::RestartAfter(Duration::from_millis(millis))
    }

    #[test]
    fn pauses_double_until_the_budget_is_spent() {
        let (mut record, now) = (DeathRecord::default(), Instant::now());
        let decisions: Vec<RestartDecision> = (0..7).map(|_| record.died(now)).collect();
        let mut expected: Vec<RestartDecision> = [100, 200, 400, 800, 1600].map(pause).to_vec();
        expected.extend([RestartDecision::OverBudget; 2]);
        assert_eq!(decisions, expected);
    }

    #[test]
    fn crashes_outside_the_window_do_not_count() {
        let (mut record, start) = (DeathRecord::default(), Instant::now());
        for _ in 0..6 {
            record.died(start);
        }
        let later = start + WINDOW + Duration::from_millis(1);
        assert!(record.is_clean(later));
        assert_eq!(record.died(later), pause(100));
        assert!(!record.is_clean(later));
    }
}
