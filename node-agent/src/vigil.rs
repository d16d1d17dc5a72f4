//! Whether the replica still listens: when to ask it for a word, and when its silence is a reason to look elsewhere.
//!
//! A replica that is frozen keeps its connections open. The pings of the connection notice it in time where beats are
//! seldom; where they are frequent, the node would be thought lost before. The fleet forgives about two beat intervals
//! after a replica fell silent, so that is how long a silence is borne.

use std::time::Duration;

use tokio::time::Instant;

use crate::dial;
use crate::failure::Failure;
use crate::terms::Terms;

#[cfg(test)]
mod tests;

/// In beat intervals: how long a silence is borne if it was asked about in time.
const BORNE: u32 = 2;
/// In beat intervals: a beat after such a silence asks for a word, which makes it every beat of a quiet stream.
const ASK_AFTER: f64 = 0.75;
/// The same where the pings of the connection are quick enough: every other beat.
const ASK_SELDOM_AFTER: f64 = 1.9;
/// In beat intervals: how long the answer to a question may take, and never less than the minimum.
const ANSWER_SHARE: f64 = 0.5;
const ANSWER_MIN: Duration = Duration::from_secs(1);
/// An agent that comes so much too late to doubt was itself asleep, and the answer may be waiting for it.
const OVERSLEPT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Vigil {
    /// The last sign of life.
    heard: Instant,
    /// The first question since then.
    asked: Option<Instant>,
    asked_again: Option<Instant>,
    doubtful: bool,
}

// === impl Vigil ===

impl Vigil {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, asked: None, asked_again: None, doubtful: false }
    }

    /// Whatever is heard is a sign of life and answers every question.
    pub(crate) fn heard(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Whether a beat said now should ask for a word.
    pub(crate) fn wants_word(&self, terms: &Terms, now: Instant) -> bool {
        let asked_lately = self.asked_again.is_some_and(|asked| now < asked + terms.beat_interval.mul_f64(ASK_AFTER));
        now >= self.heard + ask_after(terms) && !asked_lately
    }

    /// A beat asked for a word.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
        self.asked_again = Some(now);
    }

    /// When the silence becomes a reason for doubt; none if it already is one.
    ///
    /// A beat that was due and found no room on the connection counts as a question without an answer.
    pub(crate) fn doubt_at(&self, terms: &Terms, beat_due: Instant) -> Option<Instant> {
        let asked = self.asked.unwrap_or_else(|| beat_due.max(self.heard + ask_after(terms)));
        let answer_due = asked + terms.beat_interval.mul_f64(ANSWER_SHARE).max(ANSWER_MIN);
        (!self.doubtful).then(|| answer_due.max(self.heard + BORNE * terms.beat_interval))
    }

    /// Begins to doubt the replica behind `door` if it is time to.
    pub(crate) fn doubt(&mut self, terms: &Terms, beat_due: Instant, door: &str, now: Instant) -> Option<Failure> {
        let due = self.doubt_at(terms, beat_due).filter(|due| *due <= now)?;
        if now >= due + OVERSLEPT {
            self.asked = Some(now);
            return None;
        }
        self.doubtful = true;
        Some(Failure::Silent { door: door.to_owned(), silence: whole_milliseconds(now - self.heard) })
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }
}

fn ask_after(terms: &Terms) -> Duration {
    let pings_suffice = dial::HANG_NOTICED <= BORNE * terms.beat_interval;
    terms.beat_interval.mul_f64(if pings_suffice { ASK_SELDOM_AFTER } else { ASK_AFTER })
}

fn whole_milliseconds(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000))
}
