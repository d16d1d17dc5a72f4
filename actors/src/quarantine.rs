//! Quarantined nodes: they are not judged, because watching them keeps crashing.
//!
//! The list is kept beside the tree and not in it, so that a shard that is rebuilt does not start all over with a
//! node that crashes it. A quarantine ends with the tree, or when the node is created anew: another leader tries
//! again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::node::Incarnation;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;

use crate::ports::Observer;

/// How much of a panic's message is kept.
const REASON_MAX: usize = 256;

/// A node that is not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedNode {
    pub name: Text,
    pub incarnation: Incarnation,
    /// The panic of which its actor last died.
    pub reason: Text,
    pub since: Stamp,
    /// Whether the log has decided about the event that records it.
    pub noted: bool,
}

pub(crate) struct Quarantine {
    quarantined: Mutex<BTreeMap<Text, QuarantinedNode>>,
    observer: Arc<dyn Observer>,
}

// === impl Quarantine ===

impl Quarantine {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { quarantined: Mutex::default(), observer })
    }

    pub(crate) fn add(&self, name: &Text, incarnation: Incarnation, reason: &str, since: Stamp) {
        let reason = Text::clipped(reason, REASON_MAX);
        let quarantined = QuarantinedNode { name: name.clone(), incarnation, reason, since, noted: false };
        let mut all = self.quarantined();
        all.insert(name.clone(), quarantined);
        self.observer.quarantined(all.len());
    }

    /// The node if it is quarantined in this incarnation. A node that was created anew is free.
    pub(crate) fn get(&self, name: &str, incarnation: Incarnation) -> Option<QuarantinedNode> {
        self.quarantined().get(name).filter(|quarantined| quarantined.incarnation == incarnation).cloned()
    }

    pub(crate) fn noted(&self, name: &str, incarnation: Incarnation) {
        let mut all = self.quarantined();
        if let Some(quarantined) = all.get_mut(name).filter(|quarantined| quarantined.incarnation == incarnation) {
            quarantined.noted = true;
        }
    }

    /// Frees the node unless this is still the incarnation that was quarantined.
    pub(crate) fn release_other_than(&self, name: &str, current: impl FnOnce() -> Option<Incarnation>) {
        let mut all = self.quarantined();
        if all.get(name).is_some_and(|quarantined| Some(quarantined.incarnation) != current()) {
            all.remove(name);
            self.observer.quarantined(all.len());
        }
    }

    /// The quarantined nodes, in order of names.
    pub(crate) fn list(&self) -> Vec<QuarantinedNode> {
        self.quarantined().values().cloned().collect()
    }

    fn quarantined(&self) -> MutexGuard<'_, BTreeMap<Text, QuarantinedNode>> {
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
