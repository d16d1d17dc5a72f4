//! Who is evicted next, and when: a queue per zone and the token bucket that paces it.
//!
//! The bucket is replicated and charged in the log entry that evicts, so its arithmetic is exact: at a rate in
//! millionths per second, one millisecond brings a whole number of billionths of a token. Nothing is rounded, and
//! it makes no difference how often the bucket is looked at.

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::object::node::NODES_MAX;
use crate::object::policy::{Period, Rate};
use crate::value::text::Text;
use crate::value::time::ClusterTime;

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

/// The nodes of one zone that wait for a token: first come, first served, and by name among those that came
/// together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    order: OrdSet<(ClusterTime, Text)>,
    queued_at: OrdMap<Text, ClusterTime>,
}

/// What became of a node that was put into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    Added,
    /// It waits already and keeps its place. Upstream sends it to the end on every pass (NE-4).
    Kept,
    /// As many wait as a cluster may have nodes, so the queue holds nodes that are gone.
    Full,
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

    /// a changed rate always takes effect, from zero to one per second too. A bucket without a token starts
    /// empty, or switching back and forth would make tokens; at rate zero there is none, whatever was left before.
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

// === impl Queue ===

impl Queue {
    pub fn enqueue(&mut self, name: Text, now: ClusterTime) -> Enqueued {
        if self.queued_at.len() >= NODES_MAX {
            return if self.contains(&name) { Enqueued::Kept } else { Enqueued::Full };
        }
        // Hardly anybody is put in twice, and a look before each would cost as much as the deed.
        if let Some(since) = self.queued_at.insert(name.clone(), now) {
            self.queued_at.insert(name, since);
            return Enqueued::Kept;
        }
        self.order.insert((now, name));
        Enqueued::Added
    }

    /// False if it did not wait.
    pub fn remove(&mut self, name: &str) -> bool {
        match self.queued_at.remove_with_key(name) {
            Some((name, since)) => self.order.remove(&(since, name)).is_some(),
            None => false,
        }
    }

    /// Who is next, and since when it has waited.
    pub fn head(&self) -> Option<(&Text, ClusterTime)> {
        self.order.get_min().map(|(since, name)| (name, *since))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.queued_at.contains_key(name)
    }

    pub fn queued_at(&self, name: &str) -> Option<ClusterTime> {
        self.queued_at.get(name).copied()
    }

    /// How many are ahead of it. Counts them, so this is for explaining and not for deciding.
    pub fn position(&self, name: &str) -> Option<usize> {
        let since = self.queued_at(name)?;
        Some(self.order.range(..(since, Text::from(name))).count())
    }

    /// In the order of their turns.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Text, ClusterTime)> + ExactSizeIterator + '_ {
        self.order.iter().map(|(since, name)| (name, *since))
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn clear(&mut self) {
        self.order.clear();
        self.queued_at.clear();
    }
}
