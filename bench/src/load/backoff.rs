//! Pauses between two attempts to connect: each up to twice as long as the one before, with jitter.

use std::time::Duration;

use tokio::time::sleep;

const FIRST: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    next: Duration,
    /// The longest pause.
    pub(super) cap: Duration,
}

// === impl Backoff ===

impl Backoff {
    pub(super) fn new(cap: Duration) -> Self {
        Self { next: FIRST, cap }
    }

    /// The connection works: the next pause is short again.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    pub(super) async fn pause(&mut self) {
        sleep(self.next_pause(rand::random())).await;
    }

    /// The next pause is between half of the current length and all of it.
    fn next_pause(&mut self, dice: f64) -> Duration {
        let pause = self.next.mul_f64(0.5 + dice / 2.0);
        self.next = (self.next * 2).min(self.cap);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_until_a_reset() {
        let mut backoff = Backoff::new(FIRST * 3);
        let pauses = [1.0, 1.0, 0.0, 1.0].map(|dice| backoff.next_pause(dice));
        assert_eq!(pauses, [FIRST, FIRST * 2, FIRST * 3 / 2, FIRST * 3]);
        backoff.reset();
        assert_eq!(backoff, Backoff::new(FIRST * 3));
    }
}
