//! The nodes of each zone that were found silent and are not yet marked in the log.
//!
//! Each zone counts its own, and the eviction queues of all zones read them: no token is spent while verdicts are on
//! their way that would change what the queue decides by.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_lifecycle::zone::ZoneKey;

/// Holds only zones with such nodes.
#[derive(Debug, Default)]
pub(crate) struct FoundSilent(Mutex<BTreeMap<ZoneKey, u32>>);

// === impl FoundSilent ===

impl FoundSilent {
    pub(crate) fn set(&self, zone: &ZoneKey, count: usize) {
        let mut counts = self.counts();
        match u32::try_from(count).unwrap_or(u32::MAX) {
            0 => drop(counts.remove(zone)),
            count => drop(counts.insert(zone.clone(), count)),
        }
    }

    pub(crate) fn count(&self, zone: &ZoneKey) -> u32 {
        self.counts().get(zone).copied().unwrap_or_default()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<ZoneKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
