//! Schedule of renewals: once in a certificate's life if all goes well, with bounded retries if not.
//!
//! The moment is drawn once per certificate. Drawn again after a failure it could move into the future, and the
//! machine would wait although it is late. After a success there is a rest, because a machine whose clock is far ahead
//! finds every new certificate due.

use std::time::{Duration, SystemTime};

use crate::connection::Backoff;
use crate::credentials::CertificateValidity;

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The shortest rest between renewals, however short certificates last.
const REST_MIN: Duration = Duration::from_secs(5);
/// The part of a certificate's life during which it is not renewed again, even if a replica says that it has expired.
const REST_PART: u32 = 10;
/// A renewal is due at this part of a certificate's life, plus a random share of the spread.
const DUE_FROM: f64 = 0.7;
const DUE_SPREAD: f64 = 0.2;

#[derive(Debug)]
pub(super) struct Schedule {
    due: SystemTime,
    backoff: Backoff,
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptFailure {
    /// No replica answered.
    Unanswered,
    /// A replica refused.
    Refused,
}

impl Schedule {
    /// `dice` is drawn from 0 to 1, here and below.
    pub(super) fn new(validity: CertificateValidity, dice: f64) -> Self {
        Self { due: renewal_due(validity, dice), backoff: Backoff::default() }
    }

    pub(super) fn due(&self) -> SystemTime {
        self.due
    }

    /// A replica says that the certificate has expired.
    pub(super) fn hasten(&mut self, now: SystemTime) {
        self.due = self.due.min(now);
    }

    /// There is a new certificate. Returns how long to rest.
    pub(super) fn renewed(&mut self, validity: CertificateValidity, dice: f64) -> Duration {
        *self = Self::new(validity, dice);
        REST_MIN.max(life(validity) / REST_PART)
    }

    /// Returns how long to wait before the next attempt.
    pub(super) fn failed(&mut self, how: AttemptFailure, dice: f64) -> Duration {
        match how {
            AttemptFailure::Unanswered => self.backoff.pause(PAUSE_MAX, dice),
            AttemptFailure::Refused => self.backoff.long_pause(PAUSE_MAX, dice),
        }
    }
}

/// When to renew. `dice` is drawn from 0 to 1, so that machines that joined together do not renew together.
pub fn renewal_due(validity: CertificateValidity, dice: f64) -> SystemTime {
    validity.from + life(validity).mul_f64(DUE_FROM + DUE_SPREAD * dice.clamp(0.0, 1.0))
}

fn life(validity: CertificateValidity) -> Duration {
    validity.until.duration_since(validity.from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn lasting(from: u64, until: u64) -> CertificateValidity {
        CertificateValidity { from: at(from), until: at(until) }
    }

    #[test]
    fn a_renewal_is_due_between_70_and_90_percent_of_the_life() {
        for (dice, due) in [(0.0, 1_700), (0.5, 1_800), (1.0, 1_900), (7.0, 1_900), (-1.0, 1_700)] {
            let got = renewal_due(lasting(1_000, 2_000), dice).duration_since(at(due));
            let off = got.unwrap_or_else(|error| error.duration());
            assert!(off < Duration::from_millis(1), "{dice}: {off:?} off");
        }
        assert_eq!(renewal_due(lasting(2_000, 1_000), 0.5), at(2_000));
    }

    #[test]
    fn failures_do_not_move_the_moment_and_lengthen_the_pause() {
        let mut schedule = Schedule::new(lasting(1_000, 2_000), 0.0);
        let due = schedule.due();
        let pauses: Vec<_> = (0..20).map(|_| schedule.failed(AttemptFailure::Unanswered, 1.0)).collect();
        assert!(pauses.is_sorted() && pauses.last() == Some(&PAUSE_MAX), "{pauses:?}");
        assert!(schedule.failed(AttemptFailure::Refused, 0.0) >= PAUSE_MAX / 2);
        assert_eq!(schedule.due(), due);
    }

    /// Whatever the machine's clock says about the certificate.
    #[test]
    fn after_a_renewal_there_is_a_rest_of_a_tenth_of_the_life() {
        for (life, rest) in [(0, 5), (10, 5), (60, 6), (3_600, 360), (30 * 86_400, 3 * 86_400)] {
            let mut schedule = Schedule::new(lasting(0, 1), 0.5);
            schedule.failed(AttemptFailure::Refused, 1.0);
            let got = schedule.renewed(lasting(1_000, 1_000 + life), 0.5);
            assert_eq!(got, Duration::from_secs(rest), "{life}");
            assert_eq!(schedule.due(), renewal_due(lasting(1_000, 1_000 + life), 0.5));
            assert!(schedule.failed(AttemptFailure::Unanswered, 1.0) < REST_MIN, "former failures are forgotten");
        }
    }

    #[test]
    fn a_replica_can_make_a_renewal_due_and_never_delays_one() {
        let mut schedule = Schedule::new(lasting(1_000, 2_000), 0.5);
        schedule.hasten(at(1_100));
        assert_eq!(schedule.due(), at(1_100));
        schedule.hasten(at(1_200));
        assert_eq!(schedule.due(), at(1_100));
    }
}
