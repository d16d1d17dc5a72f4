//! Rounds: the interval at which samples and checks repeat.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// The shortest interval: no setting makes the agent spin.
const APART_MIN: Duration = Duration::from_millis(10);

/// At once, and then once per interval. Missed rounds are not made up for.
pub(super) fn rounds(every: Duration) -> Interval {
    let mut rounds = interval(every.max(APART_MIN));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rounds
}
