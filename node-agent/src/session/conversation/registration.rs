//! Registration under way: when to send it, and until when it must be answered.

use tokio::time::Instant;

use super::REGISTRATION_TIMEOUT;
use crate::connection::Backoff;
use crate::machine::Fingerprint;

#[derive(Default)]
pub(super) struct Registration {
    /// When to register; none while an answer is awaited.
    at: Option<Instant>,
    /// Until when the answer must have come.
    until: Option<Instant>,
    /// The status that was registered.
    pub(super) status: Option<Fingerprint>,
    pub(super) backoff: Backoff,
}

impl Registration {
    pub(super) fn wanted(at: Instant) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// Asked for again: register at `at` or later.
    pub(super) fn wanted_again(&mut self, at: Instant) {
        self.at.get_or_insert(at);
    }

    pub(super) fn asked(&mut self, status: Fingerprint, now: Instant) {
        self.at = None;
        self.until.get_or_insert(now + REGISTRATION_TIMEOUT);
        self.status = Some(status);
    }

    /// When to check again. While pods of its former incarnation run, a node does not register before `clear_from`.
    pub(super) fn deadline(&self, clear_from: Option<Instant>) -> Option<Instant> {
        let at = self.at.map(|at| clear_from.map_or(at, |clear| clear.max(at)));
        at.into_iter().chain(self.until).min()
    }

    pub(super) fn is_due(&self, clear_from: Option<Instant>, now: Instant) -> bool {
        self.at.into_iter().chain(clear_from).all(|at| at <= now) && self.at.is_some()
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
