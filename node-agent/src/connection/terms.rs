//! Session terms that the cluster sets: how often to beat, the grace period, how long to wait between attempts.

use std::time::Duration;

use muster_lifecycle::agent_bound;
use muster_proto::v1;

/// Bounds, so that a replica can neither make an agent spin nor stop it from beating.
const BEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const BEAT_INTERVAL_MAX: Duration = Duration::from_secs(600);
const BACKOFF_CAP_MIN: Duration = Duration::from_millis(100);
/// L-4: whatever a replica says, no agent stays away for longer than upstream's agents would.
const BACKOFF_CAP_MAX: Duration = Duration::from_millis(agent_bound::BACKOFF_MAX.0);
/// For each step of connecting: short where beats are frequent, because another replica must be found in time.
const STEP_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const STEP_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// From the hello to the first answer, which may need the leader.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(15);
/// Before a request is repeated: shorter than a grace period, and long enough to avoid a storm.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How much later than agreed a beat may be sent, as a share of the interval (L-2).
const BEAT_JITTER: f64 = 0.04;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTerms {
    /// Orders terms; older ones are ignored.
    pub revision: u64,
    pub beat_interval: Duration,
    pub grace: Duration,
    /// A replica gives one beat interval, which is cut to 7 s here. The leader's reattach window is twice what it gave
    /// (`pulse/src/blindness.rs`): to cut it is safe, to raise it is not.
    pub backoff_cap: Duration,
}

/// How long an agent waits at one endpoint before it dials the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectTimeouts {
    /// For the TCP connection, and again for the TLS handshake.
    pub(crate) step: Duration,
    /// For the answer to a hello.
    pub(crate) answer: Duration,
}

impl Default for SessionTerms {
    /// In force until a replica has sent its terms.
    fn default() -> Self {
        Self {
            revision: 0,
            beat_interval: Duration::from_secs(10),
            grace: Duration::from_secs(40),
            backoff_cap: BACKOFF_CAP_MAX,
        }
    }
}

impl SessionTerms {
    /// Adopts the terms a replica sent, unless they are older than those in force. A zero leaves a value as it is.
    pub(crate) fn adopt(&mut self, said: v1::Terms) {
        if said.revision < self.revision {
            return;
        }
        self.revision = said.revision;
        if let Some(interval) = given(said.beat_interval_ms) {
            self.beat_interval = interval.clamp(BEAT_INTERVAL_MIN, BEAT_INTERVAL_MAX);
        }
        if let Some(grace) = given(said.grace_ms) {
            self.grace = grace;
        }
        if let Some(cap) = given(said.backoff_cap_ms) {
            self.backoff_cap = cap.clamp(BACKOFF_CAP_MIN, BACKOFF_CAP_MAX);
        }
    }

    /// The time from one beat to the next; `dice` is drawn from 0 to 1.
    pub(crate) fn next_beat_in(&self, dice: f64) -> Duration {
        self.beat_interval.mul_f64(1.0 + BEAT_JITTER * dice)
    }

    /// How long to wait for an answer, or after a refusal, before the request is repeated.
    pub(crate) fn retry_pause(&self) -> Duration {
        self.beat_interval.clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX)
    }

    pub(crate) fn connect_timeouts(&self) -> ConnectTimeouts {
        ConnectTimeouts {
            step: self.beat_interval.clamp(STEP_TIMEOUT_MIN, STEP_TIMEOUT_MAX),
            answer: (2 * self.beat_interval).clamp(ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT_MAX),
        }
    }
}

fn given(milliseconds: u32) -> Option<Duration> {
    (milliseconds != 0).then(|| Duration::from_millis(milliseconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(revision: u64, beat_interval_ms: u32) -> v1::Terms {
        v1::Terms { revision, beat_interval_ms, grace_ms: 4 * beat_interval_ms, backoff_cap_ms: 0 }
    }

    #[test]
    fn older_terms_are_ignored() {
        let mut terms = SessionTerms::default();
        terms.adopt(said(5, 2000));
        terms.adopt(said(4, 9000));
        assert_eq!((terms.revision, terms.beat_interval.as_millis()), (5, 2000));
        terms.adopt(said(6, 3000));
        assert_eq!((terms.revision, terms.grace.as_millis()), (6, 12_000));
    }

    #[test]
    fn absurd_terms_are_bounded() {
        let mut terms = SessionTerms::default();
        terms.adopt(v1::Terms { revision: 1, beat_interval_ms: 1, grace_ms: 0, backoff_cap_ms: 1 });
        assert_eq!((terms.beat_interval, terms.backoff_cap), (BEAT_INTERVAL_MIN, BACKOFF_CAP_MIN));
        assert_eq!(terms.grace, SessionTerms::default().grace);
        terms.adopt(v1::Terms { revision: 2, beat_interval_ms: 0, grace_ms: 0, backoff_cap_ms: 60_000 });
        assert_eq!(terms.backoff_cap, Duration::from_secs(7), "L-4");
    }

    #[test]
    fn l_6_the_timeouts_at_an_endpoint_follow_the_beat_interval() {
        for (beat_interval_ms, step_ms, answer_ms) in
            [(100, 1000, 2000), (2000, 2000, 4000), (4000, 4000, 8000), (10_000, 5000, 15_000)]
        {
            let mut terms = SessionTerms::default();
            terms.adopt(said(1, beat_interval_ms));
            let ConnectTimeouts { step, answer } = terms.connect_timeouts();
            assert_eq!((step.as_millis(), answer.as_millis()), (step_ms, answer_ms), "{beat_interval_ms}");
        }
    }

    /// GC-3 frees the names of a deleted node's pods later than that.
    #[test]
    fn gc_3_one_attempt_to_connect_is_within_the_bound_that_the_rules_know() {
        let longest = Duration::from_millis(agent_bound::ATTEMPT_MAX.0);
        for beat_interval_ms in [10, 1000, 4000, 10_000, 600_000] {
            let mut terms = SessionTerms::default();
            terms.adopt(said(1, beat_interval_ms));
            let ConnectTimeouts { step, answer } = terms.connect_timeouts();
            assert!(2 * step + answer <= longest, "{beat_interval_ms}");
        }
    }

    #[test]
    fn no_repeated_request_waits_for_longer_than_a_beat() {
        for (beat_interval_ms, pause_ms) in [(100, 1000), (2000, 2000), (10_000, 10_000), (60_000, 10_000)] {
            let mut terms = SessionTerms::default();
            terms.adopt(said(1, beat_interval_ms));
            assert_eq!(terms.retry_pause().as_millis(), pause_ms, "{beat_interval_ms}");
        }
    }

    #[test]
    fn beats_are_late_by_at_most_four_percent() {
        let terms = SessionTerms::default();
        assert_eq!(terms.next_beat_in(0.0), Duration::from_secs(10));
        assert_eq!(terms.next_beat_in(1.0), Duration::from_millis(10_400));
    }
}
