//! Time in the replicated state, of two kinds.
//!
//! *Cluster time* rides in commands and never jumps: every deadline is measured in it. *Wall time* is for people to
//! read; it is stored beside cluster time and decides nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::decimal::{MILLION, millionths};
use crate::value::text::Text;

/// Milliseconds since the cluster was formed, as counted by its successive leaders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterTime(pub u64);

/// Milliseconds since the Unix epoch by some replica's wall clock. For display only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallTime(pub i64);

/// One moment, on both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    pub cluster: ClusterTime,
    pub wall: WallTime,
}

/// A length of time, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Period(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{text:?} is not a duration: write numbers with a unit (h, m, s or ms), such as 40s or 1m30s")]
pub struct PeriodError {
    pub text: Text,
}

/// Longest first, so that a duration is written with as few parts as possible.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// How much of an offending value a message quotes.
const QUOTED_MAX: usize = 64;

// === impl Period ===

impl Period {
    /// The first moment after `now` that is a whole number of these periods.
    pub fn next_multiple_after(self, now: ClusterTime) -> ClusterTime {
        let period = self.0.max(1);
        ClusterTime((now.0 / period).saturating_add(1).saturating_mul(period))
    }

    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    pub fn after(self, start: ClusterTime) -> ClusterTime {
        ClusterTime(start.0.saturating_add(self.0))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("0s");
        }
        let mut rest = self.0;
        let mut shown = String::new();
        for (unit, millis) in UNITS {
            if rest >= millis {
                shown.push_str(&format!("{}{unit}", rest / millis));
                rest %= millis;
            }
        }
        f.pad(&shown)
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let parsed = if text == "0" { Some(0) } else { millis(text) };
        parsed.map(Self).ok_or_else(|| PeriodError { text: Text::clipped(text, QUOTED_MAX) })
    }
}

/// Sums up parts such as `1m` and `30s`.
fn millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0_u64;
    loop {
        let (number, tail) = rest.split_at(rest.find(|char: char| char.is_ascii_alphabetic())?);
        let (unit, after) = tail.split_at(tail.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let scaled = millionths(number)?.checked_mul(scale)?;
        if !scaled.is_multiple_of(MILLION) {
            return None;
        }
        total = total.checked_add(scaled / MILLION)?;
        if after.is_empty() {
            return Some(total);
        }
        rest = after;
    }
}

/// The moment that comes `by` after `time`.
pub(crate) fn later(time: ClusterTime, by: Duration) -> ClusterTime {
    ClusterTime(time.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
}
