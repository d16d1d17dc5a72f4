//! Trust in a wall clock, by which certificates expire: a jump against the time since boot is not believed at once.
//!
//! Certificates are dated in wall time, and a wall clock may jump: an operator or a time server sets it. A jump of
//! weeks would make the certificates of living nodes look expired, on all replicas at once. So while a clock has
//! jumped, the time is what was known before, plus the time since boot that has passed. After [`DOUBTED_FOR`] the clock
//! is believed, because it may be the earlier time that was wrong.

use std::fmt;

use crate::value::time::{Period, WallTime};

/// A clock that is set by less than this is believed at once: no certificate depends on it, and time servers do so.
pub const JUMP_MAX: Period = Period::from_secs(600);

/// How long a clock that jumped is not believed: time for an operator to read of it and to set it right.
pub const DOUBTED_FOR: Period = Period::from_secs(24 * 3_600);

/// A machine that has just booted has its clock set by a time server, from any time to the right one.
pub const SETTLING: Period = Period::from_secs(600);

/// A clock runs faster or slower by less than this between two readings, and is not followed for less.
const SLEW: Period = Period::from_secs(1);

const MINUTE: u64 = 60_000;

/// What is known of a wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallTrust {
    /// Wall time at boot, as far as it is believed, in milliseconds.
    pub boot_at: i64,
    /// The time since boot at which the clock was first found to have jumped.
    pub doubted_since: Option<Period>,
}

/// A wall clock that jumped and is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallJump {
    /// By how much it is ahead of the time that is believed; negative if it is behind.
    pub ahead_ms: i64,
    /// How much longer it is not believed.
    pub left: Period,
}

// === impl WallTrust ===

impl WallTrust {
    /// `boot` is the time since boot, which never jumps.
    pub fn new(wall: WallTime, boot: Period) -> Self {
        Self { boot_at: boot_at(wall, boot), doubted_since: None }
    }

    /// What is known after another reading of both clocks.
    #[must_use]
    pub fn after(self, wall: WallTime, boot: Period) -> Self {
        let read = boot_at(wall, boot);
        let jump = read.abs_diff(self.boot_at);
        let is_over = self.doubted_since.is_some_and(|since| boot >= Period(since.0.saturating_add(DOUBTED_FOR.0)));
        if jump > JUMP_MAX.0 && boot > SETTLING && !is_over {
            return Self { doubted_since: self.doubted_since.or(Some(boot)), ..self };
        }
        let boot_at = if jump > SLEW.0 { read } else { self.boot_at };
        Self { boot_at, doubted_since: None }
    }

    /// The time by which certificates are judged.
    pub fn time(self, wall: WallTime, boot: Period) -> WallTime {
        match self.doubted_since {
            None => wall,
            Some(_) => WallTime(self.boot_at.saturating_add(signed(boot))),
        }
    }

    /// The jump that is not believed, if there is one.
    pub fn jump(self, wall: WallTime, boot: Period) -> Option<WallJump> {
        let since = self.doubted_since?;
        let ends = since.0.saturating_add(DOUBTED_FOR.0);
        let ahead_ms = boot_at(wall, boot).saturating_sub(self.boot_at);
        Some(WallJump { ahead_ms, left: Period(ends.saturating_sub(boot.0)) })
    }
}

fn boot_at(wall: WallTime, boot: Period) -> i64 {
    wall.0.saturating_sub(signed(boot))
}

fn signed(period: Period) -> i64 {
    i64::try_from(period.0).unwrap_or(i64::MAX)
}

/// The nearest whole minute: the clocks are read one after the other.
fn in_minutes(millis: u64) -> Period {
    Period(millis.saturating_add(MINUTE / 2) / MINUTE * MINUTE)
}

// === impl WallJump ===

impl fmt::Display for WallJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.ahead_ms > 0 { "ahead" } else { "back" };
        let (by, left) = (in_minutes(self.ahead_ms.unsigned_abs()), in_minutes(self.left.0));
        write!(
            f,
            "the wall clock jumped {way} by {by}: certificates are judged by the time as it was known before, for \
             {left} more; set the clock right, or restart the replica if it is right now"
        )
    }
}
