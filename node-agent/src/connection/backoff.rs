//! Back-off after failures: doubles from 200 ms up to a cap, with full jitter, so that agents that failed together do
//! not come back together. A longer cap makes the leader wait longer for agents: its reattach window is twice the cap
//! (`pulse/src/blindness.rs`).

use std::time::Duration;

pub(crate) const FIRST: Duration = Duration::from_millis(200);
/// After so many doublings the cap decides in any case.
const DOUBLINGS_MAX: u32 = 16;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure; `dice` is drawn from 0 to 1.
    pub(crate) fn pause(&mut self, cap: Duration, dice: f64) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX)).min(cap);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(dice.clamp(0.0, 1.0))
    }

    /// The pause after a refusal that time alone will not change: never short, still spread.
    pub(crate) fn long_pause(&mut self, cap: Duration, dice: f64) -> Duration {
        self.failures = DOUBLINGS_MAX;
        cap.mul_f64(0.5 + 0.5 * dice.clamp(0.0, 1.0))
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l_4_pauses_double_up_to_the_cap() {
        let mut backoff = Backoff::default();
        let cap = Duration::from_secs(1);
        let pauses: Vec<_> = (0..6).map(|_| backoff.pause(cap, 1.0).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1000, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.pause(cap, 1.0), FIRST);
    }

    #[test]
    fn jitter_is_full() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.pause(Duration::from_secs(1), 0.0), Duration::ZERO);
        assert_eq!(backoff.pause(Duration::from_secs(1), 0.5), FIRST);
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut backoff = Backoff { failures: u32::MAX };
        assert_eq!(backoff.pause(Duration::from_secs(2), 1.0), Duration::from_secs(2));
    }

    #[test]
    fn a_refusal_is_never_retried_at_once() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.long_pause(Duration::from_secs(2), 0.0), Duration::from_secs(1));
        assert_eq!(backoff.long_pause(Duration::from_secs(2), 1.0), Duration::from_secs(2));
    }
}
