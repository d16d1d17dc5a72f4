//! Status posting: when a node's status is posted. On change, on demand, and about every five minutes (S-1, S-2).
//!
//! One post is under way at a time. A machine whose status changes quickly is therefore heard as often as the cluster
//! can write it. What changed meanwhile is posted next, and only the newest.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::connection::SessionTerms;
use crate::machine::Fingerprint;

#[derive(Debug)]
pub(crate) struct StatusPosting {
    /// How often an unchanged status is posted.
    every: Duration,
    /// The last status that the cluster accepted.
    known: Option<Fingerprint>,
    sent: Option<Sent>,
    /// It must be posted, changed or not.
    wanted: bool,
    /// It may have changed.
    doubtful: bool,
    /// The last post was refused.
    refused: bool,
    /// If the post under way is refused, it is repeated at once.
    retry_at_once: bool,
    not_before: Instant,
    periodic: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u64,
    fingerprint: Fingerprint,
    /// When it is posted again if no answer comes.
    again_at: Instant,
    periodic: bool,
}

impl StatusPosting {
    /// The first status is always posted: what the machine was before is unknown.
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            known: None,
            sent: None,
            wanted: false,
            doubtful: false,
            refused: false,
            retry_at_once: false,
            not_before: now,
            periodic: now,
        }
    }

    pub(crate) fn demand(&mut self) {
        self.wanted = true;
    }

    pub(crate) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// The cluster learned this status with the registration.
    pub(crate) fn registered(&mut self, status: Fingerprint, now: Instant, dice: f64) {
        let periodic = now + self.spread(dice);
        *self = Self { known: Some(status), periodic, ..Self::new(self.every, now) };
    }

    /// The stream ended: the answer to a post under way will not come.
    pub(crate) fn detached(&mut self) {
        self.wanted |= self.sent.take().is_some();
    }

    /// When to read the status next.
    pub(crate) fn due(&self) -> Instant {
        match self.sent {
            Some(sent) => sent.again_at,
            None if self.wanted || self.doubtful || self.known.is_none() => self.not_before,
            None => self.periodic.max(self.not_before),
        }
    }

    /// The status to post now that it is due, if any.
    pub(crate) fn post(&mut self, status: Bytes, sequence: u64, now: Instant, terms: &SessionTerms) -> Option<Bytes> {
        let unanswered = self.sent.take().is_some();
        let fingerprint = Fingerprint::of(&status);
        let changed = self.known != Some(fingerprint);
        let periodic = now >= self.periodic;
        self.doubtful = false;
        if !(unanswered || self.wanted || changed || periodic) {
            return None;
        }
        (self.wanted, self.refused, self.retry_at_once) = (false, false, false);
        let again_at = now + terms.retry_pause();
        self.sent = Some(Sent { sequence, fingerprint, again_at, periodic: periodic && !changed });
        Some(status)
    }

    /// The post was accepted; `dice` is drawn from 0 to 1. Answers to earlier posts say nothing about the last one.
    pub(crate) fn taken(&mut self, sequence: u64, now: Instant, dice: f64) {
        if let Some(sent) = self.answered(sequence) {
            self.known = Some(sent.fingerprint);
            self.periodic = now + if sent.periodic { self.every } else { self.spread(dice) };
        }
    }

    /// The post was refused: it is repeated, but not at once.
    pub(crate) fn refused(&mut self, sequence: u64, now: Instant, terms: &SessionTerms) {
        if self.answered(sequence).is_some() {
            (self.wanted, self.refused) = (true, true);
            self.not_before = if self.retry_at_once { now } else { now + terms.retry_pause() };
        }
    }

    /// The likely reason of a refusal has passed: a status that was refused, or is about to be, is posted again
    /// without a pause.
    pub(crate) fn retry_now(&mut self, now: Instant) {
        self.retry_at_once = self.sent.is_some();
        if self.refused {
            self.not_before = now;
        }
    }

    fn answered(&mut self, sequence: u64) -> Option<Sent> {
        self.sent.take_if(|sent| sent.sequence == sequence)
    }

    /// S-2: nodes that changed together do not post together ever after. Up to half of the period earlier or later.
    fn spread(&self, dice: f64) -> Duration {
        self.every.mul_f64(0.5 + dice.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(300);
    const ONE: Bytes = Bytes::from_static(b"{\"a\":1}");
    const TWO: Bytes = Bytes::from_static(b"{\"a\":2}");

    fn posted_and_taken(now: Instant) -> StatusPosting {
        let mut posting = StatusPosting::new(EVERY, now);
        assert_eq!(posting.due(), now);
        assert_eq!(posting.post(ONE, 1, now, &SessionTerms::default()), Some(ONE));
        posting.taken(1, now, 0.5);
        posting
    }

    #[tokio::test]
    async fn s_1_an_unchanged_status_is_posted_again_only_after_five_minutes() {
        let now = Instant::now();
        let mut posting = posted_and_taken(now);
        posting.doubt();
        assert_eq!(posting.due(), now);
        assert_eq!(posting.post(ONE, 2, now, &SessionTerms::default()), None);
        assert_eq!(posting.due(), now + EVERY);
        let later = now + EVERY;
        assert_eq!(posting.post(ONE, 3, later, &SessionTerms::default()), Some(ONE));
        posting.taken(3, later, 0.0);
        assert_eq!(posting.due(), later + EVERY);
    }

    #[tokio::test]
    async fn s_2_the_first_periodic_post_after_a_change_is_jittered() {
        let now = Instant::now();
        let mut posting = posted_and_taken(now);
        posting.doubt();
        assert_eq!(posting.post(TWO, 2, now, &SessionTerms::default()), Some(TWO));
        posting.taken(2, now, 0.0);
        assert_eq!(posting.due(), now + EVERY / 2);
        for (dice, share) in [(0.5, 1.0), (0.75, 1.25), (1.0, 1.5)] {
            posting.demand();
            posting.post(ONE, 3, now, &SessionTerms::default());
            posting.taken(3, now, dice);
            assert_eq!(posting.due(), now + EVERY.mul_f64(share), "up to half of it either way");
        }
    }

    #[tokio::test]
    async fn a_requested_status_is_posted_although_nothing_changed() {
        let now = Instant::now();
        let mut posting = posted_and_taken(now);
        posting.demand();
        assert_eq!((posting.due(), posting.post(ONE, 2, now, &SessionTerms::default())), (now, Some(ONE)));
    }

    #[tokio::test]
    async fn one_post_is_pending_at_a_time_and_the_newest_status_follows() {
        let now = Instant::now();
        let mut posting = StatusPosting::new(EVERY, now);
        posting.post(ONE, 1, now, &SessionTerms::default());
        posting.doubt();
        assert!(posting.due() > now);
        posting.taken(1, now, 0.5);
        assert_eq!((posting.due(), posting.post(TWO, 2, now, &SessionTerms::default())), (now, Some(TWO)));
    }

    #[tokio::test]
    async fn s_3_a_refused_status_is_posted_again_but_not_at_once() {
        let (now, terms) = (Instant::now(), frequent());
        let mut posting = StatusPosting::new(EVERY, now);
        posting.post(ONE, 1, now, &terms);
        posting.refused(1, now, &terms);
        assert_eq!(posting.due(), now + terms.beat_interval);
        assert_eq!(posting.post(ONE, 2, posting.due(), &terms), Some(ONE));
    }

    #[tokio::test]
    async fn a_refused_status_is_posted_at_once_when_the_reason_has_passed() {
        let (now, terms) = (Instant::now(), frequent());
        let mut posting = StatusPosting::new(EVERY, now);
        posting.post(ONE, 1, now, &terms);
        posting.refused(1, now, &terms);
        posting.retry_now(now);
        assert_eq!((posting.due(), posting.post(ONE, 2, now, &terms)), (now, Some(ONE)));
        // The refusal crosses the event that makes it void.
        posting.retry_now(now);
        assert!(posting.due() > now, "a post under way may be accepted");
        posting.refused(2, now, &terms);
        assert_eq!((posting.due(), posting.post(ONE, 3, now, &terms)), (now, Some(ONE)));
        posting.refused(3, now, &terms);
        assert_eq!(posting.due(), now + terms.retry_pause());
    }

    #[tokio::test]
    async fn an_accepted_status_is_not_posted_again_at_once() {
        let now = Instant::now();
        let mut posting = posted_and_taken(now);
        posting.retry_now(now);
        assert!(posting.due() > now);
    }

    #[tokio::test]
    async fn s_3_an_unanswered_post_is_repeated_here_or_on_the_next_stream() {
        let (now, terms) = (Instant::now(), frequent());
        let mut posting = StatusPosting::new(EVERY, now);
        posting.post(ONE, 1, now, &terms);
        let later = now + terms.beat_interval;
        assert_eq!((posting.due(), posting.post(ONE, 2, later, &terms)), (later, Some(ONE)));
        posting.taken(1, later, 0.5);
        posting.detached();
        assert_eq!(posting.post(ONE, 3, later, &terms), Some(ONE));
    }

    /// As with a grace of eight seconds: pauses must be well below it.
    fn frequent() -> SessionTerms {
        SessionTerms { beat_interval: Duration::from_secs(2), grace: Duration::from_secs(8), ..SessionTerms::default() }
    }
}
