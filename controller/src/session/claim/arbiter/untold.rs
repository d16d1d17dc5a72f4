//! Which sessions of which replica were taken over, until that replica has let go of them.
//!
//! An answer may be lost, and a replica that never hears of it would keep a stream that leads nowhere. So it is told
//! with every answer, until it releases the session, be it one that it no longer knew of.

use std::collections::BTreeMap;

use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;

/// Sessions of one replica; more are not told, and end when their agents close them.
const UNTOLD_MAX: usize = 65_536;

/// Sessions in one answer: as many as can be released with the next request.
const AT_ONCE: usize = super::CLAIMS_MAX / 2;

#[derive(Debug, Default)]
pub(crate) struct Untold(BTreeMap<ReplicaId, BTreeMap<u32, v1::TakenOver>>);

// === impl Untold ===

impl Untold {
    pub(crate) fn add(&mut self, to: ReplicaId, taken_over: v1::TakenOver) {
        let untold = self.0.entry(to).or_default();
        if untold.len() < UNTOLD_MAX {
            untold.insert(taken_over.slot, taken_over);
        }
    }

    /// The session in `slot` is with `replica` again.
    pub(crate) fn forget(&mut self, replica: ReplicaId, slot: u32) {
        if let Some(untold) = self.0.get_mut(&replica) {
            untold.remove(&slot);
        }
    }

    pub(crate) fn released(&mut self, by: ReplicaId, release: &v1::SessionClaim) {
        let Some(untold) = self.0.get_mut(&by) else { return };
        let meant = |told: &v1::TakenOver| (told.generation, told.instance) == (release.generation, release.instance);
        if untold.get(&release.slot).is_some_and(meant) {
            untold.remove(&release.slot);
        }
    }

    /// What to tell `replica` now.
    pub(crate) fn of(&self, replica: ReplicaId) -> Vec<v1::TakenOver> {
        self.0.get(&replica).into_iter().flat_map(BTreeMap::values).take(AT_ONCE).cloned().collect()
    }
}
