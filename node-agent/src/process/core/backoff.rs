//! How long to wait before a container that ended is started again: at once the first time, then 10 s, doubling to
//! 5 min, and as if nothing had happened after it ran for 10 min. Kubernetes' numbers.

use std::time::Duration;

use tokio::time::Instant;

use super::Stage;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct CrashBackoff {
    next: Duration,
}

impl CrashBackoff {
    /// It ran for this long and ended now.
    pub(super) fn after(&mut self, ran: Duration, now: Instant) -> Stage {
        if ran >= FORGIVEN_AFTER {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, LONGEST);
        Stage::BackOff { until: now + pause, pause }
    }
}
