//! This replica's own monotonic time, in milliseconds, small enough to share a word with a generation.
//!
//! Boot is not zero: a peer may report a beat that it heard long before this replica started. Cutting such a beat off
//! at boot would make a dead node look alive.

use std::fmt;
use std::time::Duration;

/// Bits of a tick in a packed word: 34 years of milliseconds.
pub(crate) const TICK_BITS: u32 = 40;

const MILLIS_MAX: u64 = (1 << TICK_BITS) - 1;

/// A moment of local monotonic time. Meaningless on any other replica and after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

// === impl Tick ===

impl Tick {
    /// When this process started. 8 years lie before it and 26 after.
    pub const BOOT: Self = Self(1 << (TICK_BITS - 2));

    /// Earlier than anything that can have been heard.
    pub const ZERO: Self = Self(0);

    pub const MAX: Self = Self(MILLIS_MAX);

    /// The moment at which the caller's monotonic clock had run for `elapsed` since the process started.
    pub fn since_boot(elapsed: Duration) -> Self {
        Self::BOOT.after(elapsed)
    }

    /// At most [`Tick::MAX`]: it does not wrap.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)).min(MILLIS_MAX))
    }

    /// At least [`Tick::ZERO`]. Where that would make something look younger, use [`Tick::checked_before`].
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    pub fn checked_before(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(millis(duration)).map(Self)
    }

    /// Zero if `earlier` is in fact later.
    pub fn elapsed_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn millis(self) -> u64 {
        self.0
    }

    pub(crate) fn from_packed(word: u64) -> Self {
        Self(word & MILLIS_MAX)
    }
}

/// Relative to boot, because that is what a person can compare with the log.
impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from_boot = i128::from(self.0) - i128::from(Self::BOOT.0);
        write!(f, "boot{from_boot:+}ms")
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Tick::MAX.after(Duration::MAX), Tick::MAX);
        assert_eq!(Tick::BOOT.before(Duration::MAX), Tick::ZERO);
        assert_eq!(Tick::BOOT.checked_before(Duration::MAX), None);
        assert_eq!(Tick::ZERO.elapsed_since(Tick::BOOT), Duration::ZERO);
    }

    #[test]
    fn a_tick_is_shown_relative_to_boot() {
        assert_eq!(format!("{:?}", Tick::since_boot(Duration::from_millis(15))), "boot+15ms");
        assert_eq!(format!("{:?}", Tick::BOOT.before(Duration::from_millis(7))), "boot-7ms");
    }
}
