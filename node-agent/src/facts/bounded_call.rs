//! Bounded call: a call that may block for ever, for example on a filesystem whose server is gone.
//!
//! A blocked call holds its thread for ever. So it runs on a thread of its own, and no second call starts before the
//! first has returned: at most one thread is ever stuck.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct BoundedCall<T> {
    pending: Option<Receiver<T>>,
}

impl<T: Send + 'static> BoundedCall<T> {
    pub(crate) fn new() -> Self {
        Self { pending: None }
    }

    /// The result, perhaps of the call before, if it comes in time.
    pub(crate) fn run(&mut self, call: impl FnOnce() -> T + Send + 'static, limit: Duration) -> Option<T> {
        let receiver = self.pending.take().or_else(|| begin(call))?;
        match receiver.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(receiver);
                None
            }
        }
    }
}

fn begin<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<T>> {
    let (sender, receiver) = sync_channel(1);
    let answer = move || drop(sender.send(call()));
    thread::Builder::new().name("facts".into()).spawn(answer).ok().map(|_| receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_call_is_not_repeated() {
        let (release, held) = sync_channel::<()>(0);
        let mut call = BoundedCall::new();
        let stuck = move || held.recv().map_or(0, |()| 1);
        assert_eq!(call.run(stuck, Duration::from_millis(1)), None);
        assert_eq!(call.run(|| 2, Duration::from_millis(1)), None);
        release.send(()).unwrap();
        assert_eq!(call.run(|| 3, Duration::from_secs(60)), Some(1));
        assert_eq!(call.run(|| 4, Duration::from_secs(60)), Some(4));
    }

    #[test]
    fn a_call_that_panics_has_no_result() {
        let mut call = BoundedCall::<u8>::new();
        assert_eq!(call.run(|| std::panic::resume_unwind(Box::new(())), Duration::from_secs(60)), None);
    }
}
