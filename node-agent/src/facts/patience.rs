//! Questions that may never be answered, such as one to a filesystem whose server is gone.
//!
//! Such a question holds its thread for ever, so it is asked on one of its own, and not again before it was answered:
//! at most one thread is ever stuck.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Question<T> {
    pending: Option<Receiver<T>>,
}

impl<T: Send + 'static> Question<T> {
    pub(crate) fn new() -> Self {
        Self { pending: None }
    }

    /// The answer, perhaps to the question before, if it comes in time.
    pub(crate) fn ask(&mut self, question: impl FnOnce() -> T + Send + 'static, patience: Duration) -> Option<T> {
        let receiver = self.pending.take().or_else(|| begin(question))?;
        match receiver.recv_timeout(patience) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(receiver);
                None
            }
        }
    }
}

fn begin<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<T>> {
    let (sender, receiver) = sync_channel(1);
    let answer = move || drop(sender.send(question()));
    thread::Builder::new().name("facts".into()).spawn(answer).ok().map(|_| receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_without_an_answer_is_not_asked_again() {
        let (release, held) = sync_channel::<()>(0);
        let mut question = Question::new();
        let stuck = move || held.recv().map_or(0, |()| 1);
        assert_eq!(question.ask(stuck, Duration::from_millis(1)), None);
        assert_eq!(question.ask(|| 2, Duration::from_millis(1)), None);
        release.send(()).unwrap();
        assert_eq!(question.ask(|| 3, Duration::from_secs(60)), Some(1));
        assert_eq!(question.ask(|| 4, Duration::from_secs(60)), Some(4));
    }

    #[test]
    fn a_question_that_fails_is_one_without_an_answer() {
        let mut question = Question::<u8>::new();
        assert_eq!(question.ask(|| std::panic::resume_unwind(Box::new(())), Duration::from_secs(60)), None);
    }
}
