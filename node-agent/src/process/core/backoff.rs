//! How long to wait before what ended, or could not be started, is started again: at once the first time, then 10 s,
//! doubling to 5 min, and as if nothing had happened after it ran for 10 min. Kubernetes' numbers.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(in crate::process) struct CrashBackoff {
    next: Duration,
}

impl CrashBackoff {
    /// It ran for this long and ended now.
    pub(in crate::process) fn pause_after(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN_AFTER {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, LONGEST);
        pause
    }
}
