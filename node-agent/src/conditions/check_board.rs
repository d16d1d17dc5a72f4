//! Board of check results: checks run at their own intervals and leave their newest results here for the next report.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::condition::CheckResult;

/// In the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Network,
    Custom,
}

/// The newest results of each source.
#[derive(Debug, Default)]
pub(super) struct CheckBoard {
    results: Mutex<BTreeMap<Source, Vec<CheckResult>>>,
    changed: Notify,
}

impl CheckBoard {
    pub(super) fn put(&self, source: Source, results: Vec<CheckResult>) {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).insert(source, results);
        self.announce();
    }

    pub(super) fn all(&self) -> Vec<CheckResult> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.values().flatten().cloned().collect()
    }

    /// Asks for a report before the next round.
    pub(super) fn announce(&self) {
        self.changed.notify_one();
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
