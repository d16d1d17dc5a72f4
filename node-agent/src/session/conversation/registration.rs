//! A registration: when to ask for it, and until when it must have been answered.

use tokio::time::Instant;

use super::REGISTRATION_PATIENCE;
use crate::backoff::Backoff;
use crate::machine::Fingerprint;

#[derive(Default)]
pub(super) struct Registration {
    /// When to register; none while the answer is awaited.
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

    /// Wanted once more: not before `at`.
    pub(super) fn wanted_again(&mut self, at: Instant) {
        self.at.get_or_insert(at);
    }

    pub(super) fn asked(&mut self, status: Fingerprint, now: Instant) {
        self.at = None;
        self.until.get_or_insert(now + REGISTRATION_PATIENCE);
        self.status = Some(status);
    }

    /// When to look again. A node on which something runs does not register before that has ended.
    pub(super) fn deadline(&self, idle: bool) -> Option<Instant> {
        self.at.filter(|_| idle).into_iter().chain(self.until).min()
    }

    pub(super) fn is_due(&self, idle: bool, now: Instant) -> bool {
        idle && self.at.is_some_and(|at| at <= now)
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
