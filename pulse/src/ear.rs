//! All that a replica hears with: its tables and its excuses, shared by the sessions that write and the loops that judge.
//!
//! A session holds the own table itself, so a beat passes no lock. The locks here guard what changes rarely (which
//! replicas there are) or is asked a few times a second (who is excused).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::blindness::Blindness;
use crate::fleet::{AdmitError, Fleet, Origin};
use crate::table::PulseTable;

#[derive(Debug)]
pub struct Ear {
    fleet: RwLock<Arc<Fleet>>,
    blindness: Mutex<Blindness>,
}

// === impl Ear ===

impl Ear {
    /// `backoff_cap` as for [`Blindness::new`].
    pub fn new(me: Origin, backoff_cap: Duration) -> Self {
        Self { fleet: RwLock::new(Arc::new(Fleet::new(me))), blindness: Mutex::new(Blindness::new(backoff_cap)) }
    }

    pub fn me(&self) -> Origin {
        self.fleet().me()
    }

    /// The tables as of now; cheap, and unaffected by replicas that come and go later.
    pub fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.fleet.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where sessions on this replica put their beats.
    pub fn own(&self) -> Arc<PulseTable> {
        Arc::clone(self.fleet().own())
    }

    /// Makes room for a peer's digests. Admitting it again changes nothing.
    pub fn admit(&self, origin: Origin) -> Result<Arc<PulseTable>, AdmitError> {
        let mut fleet = self.fleet.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = fleet.as_ref().clone();
        let table = Arc::clone(changed.admit(origin)?);
        *fleet = Arc::new(changed);
        Ok(table)
    }

    /// As [`Fleet::dismiss`].
    pub fn dismiss(&self, origin: Origin) {
        let mut fleet = self.fleet.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = fleet.as_ref().clone();
        changed.dismiss(origin);
        *fleet = Arc::new(changed);
    }

    /// Not to be held across an await.
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
        let ear = Ear::new(Origin(1), Duration::from_secs(2));
        let before = ear.fleet();
        let table = ear.admit(Origin(2)).unwrap();
        let slot = Slot { index: 3, generation: 1 };
        let _ = table.beat(slot, Tick::BOOT);
        let _ = ear.own().beat(slot, Tick::BOOT.after(Duration::from_secs(1)));
        assert_eq!(ear.fleet().last_heard(slot).map(|(_, origin)| origin), Some(Origin(1)));
        assert_eq!(before.tables().count(), 1);
        assert!(before.last_heard(slot).is_some());
        ear.dismiss(Origin(2));
        assert_eq!(ear.fleet().tables().count(), 1);
    }
}
