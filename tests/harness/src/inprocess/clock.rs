//! A clock whose wall time can be set, as an operator or a broken time server would.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use muster_lifecycle::time::WallTime;
use muster_raft::clock::{Clock, SystemClock};

const HOUR: Duration = Duration::from_secs(3_600);

/// Boot time is the machine's, and an hour more: a machine that has just booted is believed any jump. Only the wall
/// clock is off.
#[derive(Default)]
pub struct SkewedClock {
    ahead_ms: AtomicI64,
}

impl SkewedClock {
    /// Sets the wall clock so much ahead of the true time, or behind it.
    pub fn set_ahead(&self, seconds: i64) {
        self.ahead_ms.store(seconds * 1_000, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn boot_time(&self) -> Duration {
        SystemClock.boot_time() + HOUR
    }

    fn wall_time(&self) -> WallTime {
        WallTime(SystemClock.wall_time().0 + self.ahead_ms.load(Ordering::SeqCst))
    }
}
