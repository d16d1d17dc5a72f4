//! Sessions whose agents have seen more than this replica has: they get their orders when it has caught up.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use muster_lifecycle::meta::Revision;

use crate::session::wake::entry::Entry;

/// At most one per session, and in practice none.
#[derive(Debug, Default)]
pub(crate) struct Lagging(Mutex<Vec<(Revision, Weak<Entry>)>>);

impl Lagging {
    pub(crate) fn add(&self, entry: &Arc<Entry>, until: Revision) {
        self.waiting().push((until, Arc::downgrade(entry)));
    }

    /// Looks at those again for whom `now` is far enough.
    pub(crate) fn caught_up(&self, now: Revision) {
        self.waiting().retain(|(until, entry)| {
            let is_served = *until <= now;
            if is_served && let Some(entry) = entry.upgrade() {
                entry.touch();
            }
            !is_served && entry.strong_count() > 0
        });
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<(Revision, Weak<Entry>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
