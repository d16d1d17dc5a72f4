//! A timer that rings once, unless it is dropped before.

use std::time::Duration;

use ractor::{ActorRef, Message};
use tokio::task::AbortHandle;

/// `at` is when it rings, on the clock of the actor that set it.
#[derive(Debug)]
pub(crate) struct Alarm<T> {
    pub(crate) at: T,
    task: AbortHandle,
}

impl<T> Alarm<T> {
    /// Sends the message to the actor after the pause.
    pub(crate) fn set<M: Message>(at: T, pause: Duration, actor: &ActorRef<M>, ring: fn() -> M) -> Self {
        Self { at, task: actor.send_after(pause, ring).abort_handle() }
    }
}

impl<T> Drop for Alarm<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
