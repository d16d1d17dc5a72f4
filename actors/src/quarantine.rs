//! The nodes that are given up on, because watching them keeps crashing.
//!
//! Kept beside the tree and not in it, so that a shard that is rebuilt does not start all over with a node that crashes
//! it. It ends with the tree, or when the node is created anew: another leader tries again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::node::Incarnation;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;

use crate::surroundings::Observer;

/// How much of a panic's message is kept.
const REASON_MAX: usize = 256;

/// A node that is not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    pub name: Text,
    pub incarnation: Incarnation,
    /// What its actor last died of.
    pub reason: Text,
    pub since: Stamp,
    /// Whether the log has spoken about the event that tells of it.
    pub noted: bool,
}

pub(crate) struct Quarantine {
    confined: Mutex<BTreeMap<Text, Confined>>,
    observer: Arc<dyn Observer>,
}

// === impl Quarantine ===

impl Quarantine {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { confined: Mutex::default(), observer })
    }

    pub(crate) fn confine(&self, name: &Text, incarnation: Incarnation, reason: &str, since: Stamp) {
        let reason = Text::clipped(reason, REASON_MAX);
        let confined = Confined { name: name.clone(), incarnation, reason, since, noted: false };
        let mut all = self.confined();
        all.insert(name.clone(), confined);
        self.observer.quarantined(all.len());
    }

    /// The node as it is confined in this incarnation. One that was created anew is free.
    pub(crate) fn get(&self, name: &str, incarnation: Incarnation) -> Option<Confined> {
        self.confined().get(name).filter(|confined| confined.incarnation == incarnation).cloned()
    }

    pub(crate) fn noted(&self, name: &str, incarnation: Incarnation) {
        let mut all = self.confined();
        if let Some(confined) = all.get_mut(name).filter(|confined| confined.incarnation == incarnation) {
            confined.noted = true;
        }
    }

    /// Frees the node unless this is still the incarnation that was confined.
    pub(crate) fn release_other_than(&self, name: &str, current: impl FnOnce() -> Option<Incarnation>) {
        let mut all = self.confined();
        if all.get(name).is_some_and(|confined| Some(confined.incarnation) != current()) {
            all.remove(name);
            self.observer.quarantined(all.len());
        }
    }

    /// In order of names.
    pub(crate) fn list(&self) -> Vec<Confined> {
        self.confined().values().cloned().collect()
    }

    fn confined(&self) -> MutexGuard<'_, BTreeMap<Text, Confined>> {
        self.confined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
