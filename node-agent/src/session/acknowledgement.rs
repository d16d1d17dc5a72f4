//! Callers that wait for an acknowledgement, each since the message that must be acknowledged.

use tokio::sync::oneshot;

const WAITERS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Acknowledgements of earlier messages do not answer this caller.
    since: u64,
    answer: oneshot::Sender<()>,
}

impl Waiters {
    /// Beyond the bound the waiter is dropped, and its caller sees the closed channel.
    pub(super) fn add(&mut self, answer: oneshot::Sender<()>, since: u64) {
        self.forget_given_up();
        if self.waiting.len() < WAITERS_MAX {
            self.waiting.push(Waiter { since, answer });
        }
    }

    /// True if a caller still waits: then the next beat must ask.
    pub(super) fn any(&mut self) -> bool {
        self.forget_given_up();
        !self.waiting.is_empty()
    }

    pub(super) fn acknowledged(&mut self, sequence: u64) {
        for waiter in self.waiting.extract_if(.., |waiter| waiter.since <= sequence) {
            // A caller that has just given up needs no answer.
            let _ = waiter.answer.send(());
        }
    }

    fn forget_given_up(&mut self) {
        self.waiting.retain(|waiter| !waiter.answer.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_sent_after_the_question_answers_it() {
        let mut waiters = Waiters::default();
        let (answer, mut heard) = oneshot::channel();
        waiters.add(answer, 5);
        waiters.acknowledged(4);
        assert!(heard.try_recv().is_err() && waiters.any());
        waiters.acknowledged(6);
        assert!(heard.try_recv().is_ok() && !waiters.any());
    }

    #[test]
    fn callers_that_gave_up_are_removed() {
        let mut waiters = Waiters::default();
        for _ in 0..3 * WAITERS_MAX {
            waiters.add(oneshot::channel().0, 1);
        }
        assert!(!waiters.any());
        let patient: Vec<_> = (0..=WAITERS_MAX)
            .map(|_| oneshot::channel())
            .map(|(answer, heard)| {
                waiters.add(answer, 1);
                heard
            })
            .collect();
        waiters.acknowledged(1);
        assert_eq!(patient.into_iter().filter_map(|mut heard| heard.try_recv().ok()).count(), WAITERS_MAX);
    }
}
