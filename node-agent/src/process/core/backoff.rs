//! Crash back-off: a container that ended or failed to start is restarted at once the first time, then after 10 s,
//! doubling up to 5 min. A container that ran for 10 min starts over. These are Kubernetes' numbers.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(in crate::process) struct CrashBackoff {
    next: Duration,
}

impl CrashBackoff {
    /// The pause before the next start of a container that ran for this long.
    pub(in crate::process) fn pause_after(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN_AFTER {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, LONGEST);
        pause
    }
}
