//! Whether the fleet has heard what this machine is: said once per process, after the first welcome (RG-4).
//!
//! A node that registers has said it with that. One that is known is welcomed as it was, perhaps by a former process with
//! other labels, so its agent says what the machine is now; whether that is news the fleet decides. A machine that does
//! not register says nothing, as its operator wanted it.

use std::time::Duration;

use tokio::time::Instant;

/// What was not answered or was refused is said again after this, half of it earlier or later.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Introduction {
    /// When to say it; none once the fleet knows.
    due: Option<Instant>,
}

impl Introduction {
    pub(crate) fn new(registers: bool, now: Instant) -> Self {
        Self { due: registers.then_some(now) }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It was said, or refused; `dice` is drawn from 0 to 1.
    pub(crate) fn put_off(&mut self, now: Instant, dice: f64) {
        self.due = self.due.map(|_| now + AGAIN.mul_f64(0.5 + dice.clamp(0.0, 1.0)));
    }

    pub(crate) fn known(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rg_4_it_is_said_once_and_again_only_if_it_was_not_taken() {
        let now = Instant::now();
        let mut introduction = Introduction::new(true, now);
        assert!(introduction.is_due(now));
        introduction.put_off(now, 0.5);
        assert_eq!((introduction.is_due(now), introduction.due()), (false, Some(now + AGAIN)));
        introduction.known();
        introduction.put_off(now, 0.5);
        assert_eq!(introduction.due(), None, "an answer that comes late changes nothing");
    }

    #[tokio::test]
    async fn rg_4_a_machine_that_does_not_register_says_nothing() {
        assert_eq!(Introduction::new(false, Instant::now()).due(), None);
    }
}
