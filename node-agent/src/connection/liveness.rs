//! Liveness of the replica at the other end of a link: when a beat asks for an acknowledgement, and how long a silence
//! may last before the agent searches for another replica.
//!
//! A frozen replica keeps its connections open. Where beats are rare, the pings of the connection notice it in time.
//! Where beats are frequent, the cluster would mark the node Unknown first. The leader tolerates about two beat
//! intervals after a replica falls silent, so a silence of two intervals starts the search.

use std::time::Duration;

use tokio::time::Instant;

use super::dial;
use super::failure::SessionFailure;
use super::terms::SessionTerms;

#[cfg(test)]
mod tests;

/// In beat intervals: how long a silence is tolerated if a beat asked in time.
const SILENCE_MAX: u32 = 2;
/// In beat intervals: a beat after such a silence asks for an acknowledgement. On a quiet stream that is every beat.
const ASK_AFTER: f64 = 0.75;
/// The same where the connection's pings are quick enough: every second beat.
const ASK_SELDOM_AFTER: f64 = 1.9;
/// In beat intervals: how long an acknowledgement may take, never less than the minimum.
const ANSWER_SHARE: f64 = 0.5;
const ANSWER_MIN: Duration = Duration::from_secs(1);
/// An agent that notices a silence so much too late was itself suspended, and the answer may be waiting to be read.
const SUSPENDED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ReplicaLiveness {
    /// When the replica was last heard.
    heard: Instant,
    /// When a beat first asked since then.
    asked: Option<Instant>,
    asked_again: Option<Instant>,
    doubtful: bool,
}

// === impl ReplicaLiveness ===

impl ReplicaLiveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, asked: None, asked_again: None, doubtful: false }
    }

    /// A message arrived: the replica lives, and every question is answered.
    pub(crate) fn heard(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Whether a beat sent now should ask for an acknowledgement.
    pub(crate) fn wants_answer(&self, terms: &SessionTerms, now: Instant) -> bool {
        let asked_lately = self.asked_again.is_some_and(|asked| now < asked + terms.beat_interval.mul_f64(ASK_AFTER));
        now >= self.heard + ask_after(terms) && !asked_lately
    }

    /// A beat asked for an acknowledgement.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
        self.asked_again = Some(now);
    }

    /// When the silence becomes a doubt; none if the replica is in doubt already.
    ///
    /// A beat that was due and found no room on the connection counts as an unanswered question.
    pub(crate) fn doubt_at(&self, terms: &SessionTerms, beat_due: Instant) -> Option<Instant> {
        let asked = self.asked.unwrap_or_else(|| beat_due.max(self.heard + ask_after(terms)));
        let answer_due = asked + terms.beat_interval.mul_f64(ANSWER_SHARE).max(ANSWER_MIN);
        (!self.doubtful).then(|| answer_due.max(self.heard + SILENCE_MAX * terms.beat_interval))
    }

    /// Starts to doubt the replica at `endpoint` if the silence has lasted long enough.
    pub(crate) fn doubt(
        &mut self,
        terms: &SessionTerms,
        beat_due: Instant,
        endpoint: &str,
        now: Instant,
    ) -> Option<SessionFailure> {
        let due = self.doubt_at(terms, beat_due).filter(|due| *due <= now)?;
        if now >= due + SUSPENDED {
            self.asked = Some(now);
            return None;
        }
        self.doubtful = true;
        Some(SessionFailure::Silent { endpoint: endpoint.to_owned(), silence: whole_milliseconds(now - self.heard) })
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

fn ask_after(terms: &SessionTerms) -> Duration {
    let pings_suffice = dial::HANG_NOTICED <= SILENCE_MAX * terms.beat_interval;
    terms.beat_interval.mul_f64(if pings_suffice { ASK_SELDOM_AFTER } else { ASK_AFTER })
}

fn whole_milliseconds(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000))
}
