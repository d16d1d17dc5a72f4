//! Letterboxes: updates from one actor to another that never queue. The newest update counts, and one wake-up is
//! enough.
//!
//! Mailboxes have no bound. So an update that may come in faster than it is read goes into a letterbox, where a later
//! update replaces an earlier one about the same thing. The mailbox only gets a wake-up if none is under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ractor::{ActorId, ActorRef, Message};

#[derive(Debug, Default)]
pub(crate) struct Letterbox<L> {
    content: Mutex<Content<L>>,
}

#[derive(Debug, Default)]
struct Content<L> {
    letters: L,
    /// The reader has been woken and has not looked yet.
    announced: bool,
}

/// A message that says no more than "look into your letterbox".
pub(crate) trait Wake: Message {
    fn wake() -> Self;
}

/// A child that gets its updates through its letterbox.
#[derive(Debug)]
pub(crate) struct Reader<M, L> {
    pub(crate) actor: ActorRef<M>,
    pub(crate) letterbox: Arc<Letterbox<L>>,
}

// === impl Letterbox ===

impl<L: Default> Letterbox<L> {
    pub(crate) fn with(letters: L) -> Arc<Self> {
        Arc::new(Self { content: Mutex::new(Content { letters, announced: false }) })
    }

    /// Returns whether the reader has to be woken.
    #[must_use]
    pub(crate) fn post(&self, write: impl FnOnce(&mut L)) -> bool {
        let mut content = self.content();
        write(&mut content.letters);
        !std::mem::replace(&mut content.announced, true)
    }

    pub(crate) fn take(&self) -> L {
        let mut content = self.content();
        content.announced = false;
        std::mem::take(&mut content.letters)
    }

    fn content(&self) -> MutexGuard<'_, Content<L>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reader ===

impl<M: Wake, L: Default> Reader<M, L> {
    /// Updates for a dead reader are lost: its successor reads the state instead.
    pub(crate) fn tell(&self, write: impl FnOnce(&mut L)) {
        if self.letterbox.post(write) {
            let _ = self.actor.cast(M::wake());
        }
    }
}

impl<M: Message, L> Reader<M, L> {
    pub(crate) fn id(&self) -> ActorId {
        self.actor.get_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wake_up_covers_all_updates_until_they_are_read() {
        let letterbox: Arc<Letterbox<Vec<u8>>> = Letterbox::with(Vec::new());
        assert!(letterbox.post(|letters| letters.push(1)));
        assert!(!letterbox.post(|letters| letters.push(2)));
        assert_eq!(letterbox.take(), [1, 2]);
        assert!(letterbox.post(|letters| letters.push(3)));
        assert_eq!(letterbox.take(), [3]);
        assert!(letterbox.take().is_empty());
    }
}
