//! Sessions whose agents have seen a newer state than this replica has: they get orders once it has caught up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use muster_lifecycle::meta::Revision;

use crate::session::wake::entry::Entry;

/// At most one element per session, and usually none.
#[derive(Debug, Default)]
pub(crate) struct LaggingSessions(Mutex<Vec<(Revision, Weak<Entry>)>>);

// === impl LaggingSessions ===

impl LaggingSessions {
    pub(crate) fn add(&self, entry: &Arc<Entry>, until: Revision) {
        self.waiting().push((until, Arc::downgrade(entry)));
    }

    /// Wakes the sessions for which a state of revision `now` is new enough.
    pub(crate) fn caught_up(&self, now: Revision) {
        self.waiting().retain(|(until, entry)| {
            let is_served = *until <= now;
            if is_served && let Some(entry) = entry.upgrade() {
                entry.touch();
            }
            !is_served && entry.strong_count() > 0
        });
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Revision, Weak<Entry>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
