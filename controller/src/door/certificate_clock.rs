//! The clock by which certificates are judged: the wall clock, unless it jumped.
//!
//! [`WallTrust`] decides; this only reads the clocks and remembers. It is read for every message of a session, so it
//! takes no lock: two readers that find a jump at the same time remember the same.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_lifecycle::time::{Period, WallTime};
use muster_lifecycle::wall_trust::{WallJump, WallTrust};
use muster_raft::clock::{Clock, SystemClock};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// No jump is doubted.
const NEVER: u64 = u64::MAX;

/// Clones share what is known.
#[derive(Clone)]
pub struct CertificateClock(Arc<SharedClock>);

struct SharedClock {
    clock: Arc<dyn Clock>,
    boot_at: AtomicI64,
    doubted_since: AtomicU64,
}

// === impl CertificateClock ===

impl CertificateClock {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let known = WallTrust::new(clock.wall_time(), since_boot(clock.as_ref()));
        let boot_at = AtomicI64::new(known.boot_at);
        Self(Arc::new(SharedClock { clock, boot_at, doubted_since: AtomicU64::new(NEVER) }))
    }

    pub fn now(&self) -> SystemTime {
        let (wall, boot) = self.read();
        moment(self.look(wall, boot).time(wall, boot))
    }

    /// The jump that is not believed, if the wall clock made one.
    pub fn jump(&self) -> Option<WallJump> {
        let (wall, boot) = self.read();
        self.look(wall, boot).jump(wall, boot)
    }

    /// Stored only when it changes, so that readers on many threads do not get in each other's way.
    fn look(&self, wall: WallTime, boot: Period) -> WallTrust {
        let known = self.known();
        let trust = known.after(wall, boot);
        if trust != known {
            self.0.boot_at.store(trust.boot_at, Ordering::Relaxed);
            self.0.doubted_since.store(trust.doubted_since.map_or(NEVER, |since| since.0), Ordering::Relaxed);
        }
        trust
    }

    fn known(&self) -> WallTrust {
        let since = self.0.doubted_since.load(Ordering::Relaxed);
        let doubted_since = (since != NEVER).then_some(Period(since));
        WallTrust { boot_at: self.0.boot_at.load(Ordering::Relaxed), doubted_since }
    }

    fn read(&self) -> (WallTime, Period) {
        (self.0.clock.wall_time(), since_boot(self.0.clock.as_ref()))
    }
}

impl Default for CertificateClock {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl fmt::Debug for CertificateClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CertificateClock").field(&self.known()).finish()
    }
}

/// Handshakes are judged by it too.
impl TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        self.now().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

fn since_boot(clock: &dyn Clock) -> Period {
    Period(u64::try_from(clock.boot_time().as_millis()).unwrap_or(u64::MAX))
}

fn moment(at: WallTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour after boot, and so much ahead of the true time.
    #[derive(Default)]
    struct SetClock {
        ahead_ms: AtomicI64,
        passed_ms: AtomicU64,
    }

    impl Clock for SetClock {
        fn boot_time(&self) -> Duration {
            Duration::from_secs(3_600) + Duration::from_millis(self.passed_ms.load(Ordering::Relaxed))
        }

        fn wall_time(&self) -> WallTime {
            let passed = i64::try_from(self.passed_ms.load(Ordering::Relaxed)).unwrap();
            WallTime(1_700_000_000_000 + passed + self.ahead_ms.load(Ordering::Relaxed))
        }
    }

    fn at(clock: &CertificateClock) -> u64 {
        u64::try_from(clock.now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap() - 1_700_000_000_000
    }

    #[test]
    fn a_jump_of_weeks_does_not_move_it_and_every_clone_knows() {
        const WEEKS: i64 = 3 * 7 * 24 * 3_600_000;
        let set = Arc::new(SetClock::default());
        let clock = CertificateClock::new(Arc::clone(&set) as _);
        let other = clock.clone();
        set.passed_ms.store(5_000, Ordering::Relaxed);
        set.ahead_ms.store(WEEKS, Ordering::Relaxed);
        assert_eq!(at(&clock), 5_000);
        let unix = other.current_time().map(|time| time.as_secs());
        assert_eq!(unix, Some(1_700_000_005));
        assert_eq!(other.jump().map(|jump| jump.ahead_ms), Some(WEEKS));
        set.passed_ms.store(9_000, Ordering::Relaxed);
        set.ahead_ms.store(0, Ordering::Relaxed);
        assert_eq!((at(&other), clock.jump()), (9_000, None));
    }
}
