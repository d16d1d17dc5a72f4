//! Take-overs that a replica has not acknowledged: sessions that it lost and has not released.
//!
//! An answer may be lost, and a replica that never hears of a take-over would keep a stream without a session. So each
//! answer names its take-overs again, until the replica releases the session, whether it still knew of it or not.

use std::collections::BTreeMap;

use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;

/// Take-overs kept for one replica. Further sessions are not named, and end when their agents close them.
const KEPT_MAX: usize = 65_536;

/// Take-overs in one answer: as many as can be released with the next request.
const AT_ONCE: usize = super::CLAIMS_MAX / 2;

/// By the replica that lost the session, and by slot.
#[derive(Debug, Default)]
pub(super) struct TakeOvers(BTreeMap<ReplicaId, BTreeMap<u32, v1::TakenOver>>);

// === impl TakeOvers ===

impl TakeOvers {
    pub(super) fn add(&mut self, from: ReplicaId, taken_over: v1::TakenOver) {
        let of_replica = self.0.entry(from).or_default();
        if of_replica.len() < KEPT_MAX {
            of_replica.insert(taken_over.slot, taken_over);
        }
    }

    /// Forgets the take-over in `slot`: `replica` has the session again.
    pub(super) fn forget(&mut self, replica: ReplicaId, slot: u32) {
        if let Some(of_replica) = self.0.get_mut(&replica) {
            of_replica.remove(&slot);
        }
    }

    pub(super) fn released(&mut self, by: ReplicaId, release: &v1::SessionClaim) {
        let Some(of_replica) = self.0.get_mut(&by) else { return };
        let meant = |lost: &v1::TakenOver| (lost.generation, lost.instance) == (release.generation, release.instance);
        if of_replica.get(&release.slot).is_some_and(meant) {
            of_replica.remove(&release.slot);
        }
    }

    /// The take-overs that the next answer to `replica` names.
    pub(super) fn of(&self, replica: ReplicaId) -> Vec<v1::TakenOver> {
        self.0.get(&replica).into_iter().flat_map(BTreeMap::values).take(AT_ONCE).cloned().collect()
    }
}
