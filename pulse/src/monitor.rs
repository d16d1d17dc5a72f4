//! The pulse monitor of a replica: its tables and its excuses, shared by writing sessions and judging loops.
//!
//! A session holds the replica's own table directly, so a beat takes no lock. The locks here guard what changes rarely
//! (the set of replicas) or is asked a few times a second (the excuses).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use muster_lifecycle::leader_view::LeaderView;
use muster_lifecycle::node::Node;
use muster_lifecycle::policy::Policy;

use crate::blindness::{Blindness, JudgingLoop};
use crate::by_replica::{AdmitError, PulseTables};
use crate::moment::Moment;
use crate::table::PulseTable;
use muster_lifecycle::replica::ReplicaId;

#[derive(Debug)]
pub struct PulseMonitor {
    tables: RwLock<Arc<PulseTables>>,
    blindness: Mutex<Blindness>,
}

// === impl PulseMonitor ===

impl PulseMonitor {
    /// `backoff_cap` is the one of [`Blindness::new`].
    pub fn new(me: ReplicaId, backoff_cap: Duration) -> Self {
        Self { tables: RwLock::new(Arc::new(PulseTables::new(me))), blindness: Mutex::new(Blindness::new(backoff_cap)) }
    }

    pub fn me(&self) -> ReplicaId {
        self.tables().me()
    }

    /// The tables as of now; cheap, and unaffected by replicas that come and go later.
    pub fn tables(&self) -> Arc<PulseTables> {
        Arc::clone(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The table into which sessions on this replica put their beats.
    pub fn own(&self) -> Arc<PulseTable> {
        Arc::clone(self.tables().own())
    }

    /// Makes room for a peer's digests. Admitting it again changes nothing.
    pub fn admit(&self, replica: ReplicaId) -> Result<Arc<PulseTable>, AdmitError> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = tables.as_ref().clone();
        let table = Arc::clone(changed.admit(replica)?);
        *tables = Arc::new(changed);
        Ok(table)
    }

    /// See [`PulseTables::dismiss`].
    pub fn dismiss(&self, replica: ReplicaId) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = tables.as_ref().clone();
        changed.dismiss(replica);
        *tables = Arc::new(changed);
    }

    /// Calls `decide` with what this replica, as the leader, decides by at a moment: a [`LeaderView`].
    pub fn view<R>(&self, policy: &Policy, moment: Moment, decide: impl FnOnce(&LeaderView<'_>) -> R) -> R {
        let tables = self.tables();
        let blindness = self.blindness();
        let is_blind = blindness.blind_until(moment.tick, JudgingLoop::of(policy)).is_some();
        let excused = if is_blind { moment.tick } else { blindness.last_excused(moment.tick) };
        drop(blindness);
        let heard = |node: &Node| tables.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at));
        let (now, blind_until) = (moment.stamp.cluster, moment.cluster_time_of(excused));
        decide(&LeaderView { now, is_blind, blind_until, heard: &heard })
    }

    /// The guard must not be held across an await.
    pub fn blindness(&self) -> MutexGuard<'_, Blindness> {
        self.blindness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::node::Slot;

    use super::*;
    use crate::tick::Tick;

    #[test]
    fn a_snapshot_of_the_fleet_shares_its_tables() {
        let monitor = PulseMonitor::new(ReplicaId(1), Duration::from_secs(2));
        let before = monitor.tables();
        let table = monitor.admit(ReplicaId(2)).unwrap();
        let slot = Slot { index: 3, generation: 1 };
        let _ = table.beat(slot, Tick::BOOT);
        let _ = monitor.own().beat(slot, Tick::BOOT.after(Duration::from_secs(1)));
        assert_eq!(monitor.tables().last_heard(slot).map(|(_, replica)| replica), Some(ReplicaId(1)));
        assert_eq!(before.iter().count(), 1);
        assert!(before.last_heard(slot).is_some());
        monitor.dismiss(ReplicaId(2));
        assert_eq!(monitor.tables().iter().count(), 1);
    }
}
