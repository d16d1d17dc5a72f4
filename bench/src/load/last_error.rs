//! The last error of many connections, for the message when a load does not get to its end.

use std::sync::Mutex;

#[derive(Debug, Default)]
pub(super) struct LastError(Mutex<Option<String>>);

// === impl LastError ===

impl LastError {
    pub(super) fn set(&self, why: String) {
        if let Ok(mut last) = self.0.lock() {
            *last = Some(why);
        }
    }

    /// "none" before the first one.
    pub(super) fn text(&self) -> String {
        let last = self.0.lock().ok().and_then(|last| last.clone());
        last.unwrap_or_else(|| "none".to_owned())
    }
}
