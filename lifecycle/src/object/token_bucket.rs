//! Token bucket of burst one: it paces the evictions of a zone.
//!
//! The bucket is replicated and charged in the log entry that evicts, so its arithmetic is exact: at a rate in
//! millionths per second, one millisecond brings a whole number of billionths of a token. Nothing is rounded, and
//! reading the bucket more often changes nothing.

use serde::{Deserialize, Serialize};

use crate::object::policy::Rate;
use crate::value::time::{ClusterTime, Period};

/// One token, in billionths, which is also all that a bucket holds.
const TOKEN: u64 = 1_000_000_000;

/// A token bucket of burst one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenBucket {
    rate: Rate,
    /// Billionths of a token, at `refilled_at`.
    level: u64,
    refilled_at: ClusterTime,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// starts full, so that the first node of a zone does not wait.
    pub fn new(rate: Rate, now: ClusterTime) -> Self {
        Self { rate, level: TOKEN, refilled_at: now }
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// a changed rate always takes effect, from zero to one per second too. A bucket without a whole token
    /// starts empty at the new rate, or switching back and forth would make tokens. At rate zero there is no token,
    /// whatever was left before.
    pub fn set_rate(&mut self, rate: Rate, now: ClusterTime) {
        if rate == self.rate {
            return;
        }
        self.level = if self.has_token(now) { TOKEN } else { 0 };
        self.refilled_at = now.max(self.refilled_at);
        self.rate = rate;
    }

    pub fn has_token(&self, now: ClusterTime) -> bool {
        self.rate > Rate::NEVER && self.level_at(now) == TOKEN
    }

    /// Takes the token if there is one.
    pub fn take(&mut self, now: ClusterTime) -> bool {
        let taken = self.has_token(now);
        self.level = if taken { 0 } else { self.level_at(now) };
        self.refilled_at = now.max(self.refilled_at);
        taken
    }

    /// When there will be a token: `now` if there is one, `None` if there never will be at this rate.
    pub fn next_token_at(&self, now: ClusterTime) -> Option<ClusterTime> {
        let missing = TOKEN - self.level_at(now);
        (self.rate > Rate::NEVER).then(|| Period(missing.div_ceil(self.rate.0)).after(now))
    }

    /// When the node at this position of the queue (0 is the head) gets its token if nothing changes and each
    /// token is taken when it comes.
    pub fn eta(&self, position: usize, now: ClusterTime) -> Option<ClusterTime> {
        let first = self.next_token_at(now)?;
        let ahead = u64::try_from(position).unwrap_or(u64::MAX);
        Some(Period(ahead.saturating_mul(TOKEN.div_ceil(self.rate.0))).after(first))
    }

    fn level_at(&self, now: ClusterTime) -> u64 {
        let elapsed = now.0.saturating_sub(self.refilled_at.0);
        self.level.saturating_add(self.rate.0.saturating_mul(elapsed)).min(TOKEN)
    }
}
