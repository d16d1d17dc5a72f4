//! Where checks that run at their own pace leave what they found, for the next report.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::condition::Finding;

/// In the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Network,
    Custom,
}

/// The newest findings of each source.
#[derive(Debug, Default)]
pub(super) struct Board {
    findings: Mutex<BTreeMap<Source, Vec<Finding>>>,
    news: Notify,
}

impl Board {
    pub(super) fn put(&self, source: Source, findings: Vec<Finding>) {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).insert(source, findings);
        self.announce();
    }

    pub(super) fn all(&self) -> Vec<Finding> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.values().flatten().cloned().collect()
    }

    /// Something is worth a report before the next look.
    pub(super) fn announce(&self) {
        self.news.notify_one();
    }

    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}
