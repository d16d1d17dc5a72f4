//! Pulse tables by replica: this replica's own receipts, and those its peers told it about.
//!
//! The tables stay apart for two reasons. Only the replica's own may be told on, because an echo would keep dead nodes
//! alive. And an excuse may concern one replica alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use thiserror::Error;

use crate::table::{CHUNK_SLOTS, CHUNKS_MAX, Chunk, PulseTable, Word};
use crate::tick::Tick;

/// The most replicas that a fleet can be heard through, this one included.
pub const HEARD_THROUGH_MAX: usize = 16;

/// Clones share the tables: to change the set of replicas, change a clone and publish it.
#[derive(Debug, Clone)]
pub struct PulseTables {
    me: ReplicaId,
    own: Arc<PulseTable>,
    others: BTreeMap<ReplicaId, Arc<PulseTable>>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum AdmitError {
    #[error("cannot listen through replica {0}: it is this replica itself")]
    Own(ReplicaId),
    #[error(
        "cannot listen through replica {0}: {HEARD_THROUGH_MAX} replicas are listened through already, dismiss one first"
    )]
    TooMany(ReplicaId),
}

// === impl PulseTables ===

impl PulseTables {
    pub fn new(me: ReplicaId) -> Self {
        Self { me, own: Arc::default(), others: BTreeMap::new() }
    }

    pub fn me(&self) -> ReplicaId {
        self.me
    }

    /// The table into which sessions on this replica put their beats.
    pub fn own(&self) -> &Arc<PulseTable> {
        &self.own
    }

    /// The table to which a peer's digests are applied.
    pub fn other(&self, replica: ReplicaId) -> Option<&Arc<PulseTable>> {
        self.others.get(&replica)
    }

    /// Makes room for a peer's digests. Admitting it again changes nothing.
    pub fn admit(&mut self, replica: ReplicaId) -> Result<&Arc<PulseTable>, AdmitError> {
        if replica == self.me {
            return Err(AdmitError::Own(replica));
        }
        if !self.others.contains_key(&replica) && self.others.len() + 1 >= HEARD_THROUGH_MAX {
            return Err(AdmitError::TooMany(replica));
        }
        Ok(self.others.entry(replica).or_default())
    }

    /// Forgets a peer that left the cluster, and with it the nodes that only it has heard. Call it after the peer's
    /// excuses and every grace that began before it left are over, or those nodes look as if they had never been heard.
    pub fn dismiss(&mut self, replica: ReplicaId) {
        self.others.remove(&replica);
    }

    /// All tables, this replica's own first.
    pub fn iter(&self) -> impl Iterator<Item = (ReplicaId, &PulseTable)> {
        let others = self.others.iter().map(|(replica, table)| (*replica, &**table));
        std::iter::once((self.me, &*self.own)).chain(others)
    }

    /// The slots that no replica has heard since `since`, each under the last generation that any replica heard. One
    /// scan reads neighbours; asking for each slot would jump from one end of every table to the other.
    pub fn unheard(&self, since: Tick) -> HashSet<Slot> {
        let mut unheard = HashSet::new();
        for (number, first) in (0..CHUNKS_MAX).zip((0_u32..).step_by(CHUNK_SLOTS)) {
            let chunks: Vec<&Chunk> = self.iter().filter_map(|(_, table)| table.chunk(number)).collect();
            let cells = if chunks.is_empty() { 0 } else { CHUNK_SLOTS };
            for (index, cell) in (first..).zip(0..cells) {
                let newest = chunks.iter().map(|chunk| chunk.word(cell)).max().and_then(Word::unpack);
                if let Some((generation, heard)) = newest
                    && heard < since
                {
                    unheard.insert(Slot { index, generation });
                }
            }
        }
        unheard
    }

    /// The newest receipt over all replicas. Among equally new ones this replica's own counts, then the lowest id's.
    pub fn last_heard(&self, slot: Slot) -> Option<(Tick, ReplicaId)> {
        let receipts = self.iter().filter_map(|(replica, table)| Some((table.heard(slot)?, replica)));
        receipts.reduce(|best, next| if next.0 > best.0 { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NODE: Slot = Slot { index: 7, generation: 2 };

    fn at(millis: u64) -> Tick {
        Tick::since_boot(Duration::from_millis(millis))
    }

    #[test]
    fn the_newest_receipt_counts_at_whichever_replica() {
        let mut tables = PulseTables::new(ReplicaId(1));
        assert_eq!(tables.last_heard(NODE), None);
        let second = tables.admit(ReplicaId(2)).unwrap().clone();
        let third = tables.admit(ReplicaId(3)).unwrap().clone();
        let _ = third.beat(NODE, at(10));
        assert_eq!(tables.last_heard(NODE), Some((at(10), ReplicaId(3))));
        let _ = tables.own().beat(NODE, at(20));
        let _ = second.beat(NODE, at(20));
        assert_eq!(tables.last_heard(NODE), Some((at(20), ReplicaId(1))));
        let _ = second.beat(NODE, at(30));
        assert_eq!(tables.last_heard(NODE), Some((at(30), ReplicaId(2))));
    }

    #[test]
    fn a_newer_generation_elsewhere_does_not_hide_a_receipt() {
        let mut tables = PulseTables::new(ReplicaId(1));
        let _ = tables.own().beat(NODE, at(10));
        let successor = Slot { generation: 3, ..NODE };
        let _ = tables.admit(ReplicaId(2)).unwrap().beat(successor, at(20));
        assert_eq!(tables.last_heard(NODE), Some((at(10), ReplicaId(1))));
        assert_eq!(tables.last_heard(successor), Some((at(20), ReplicaId(2))));
    }

    #[test]
    fn a_slot_heard_by_any_replica_is_not_unheard() {
        let slot = |index| Slot { index, generation: 2 };
        let mut tables = PulseTables::new(ReplicaId(1));
        let second = tables.admit(ReplicaId(2)).unwrap().clone();
        for (index, millis) in [(3, 10), (4, 30), (5_000, 20), (5_001, 10)] {
            let _ = tables.own().beat(slot(index), at(millis));
        }
        let _ = second.beat(slot(5_001), at(25));
        let _ = second.beat(slot(9_000), at(5));
        assert_eq!(tables.unheard(at(20)), HashSet::from([slot(3), slot(9_000)]));
        let successor = Slot { generation: 3, ..slot(4) };
        let _ = second.beat(successor, at(15));
        assert!(tables.unheard(at(20)).contains(&successor), "its predecessor's beats are not its own");
        assert!(tables.unheard(at(0)).is_empty());
    }

    #[test]
    fn the_number_of_replicas_is_bounded() {
        let mut tables = PulseTables::new(ReplicaId(0));
        assert_eq!(tables.admit(ReplicaId(0)).unwrap_err(), AdmitError::Own(ReplicaId(0)));
        for id in 1..HEARD_THROUGH_MAX as u64 {
            tables.admit(ReplicaId(id)).unwrap();
        }
        assert_eq!(tables.admit(ReplicaId(99)).unwrap_err(), AdmitError::TooMany(ReplicaId(99)));
        tables.admit(ReplicaId(1)).unwrap();
        tables.dismiss(ReplicaId(1));
        tables.admit(ReplicaId(99)).unwrap();
        assert_eq!(tables.iter().count(), HEARD_THROUGH_MAX);
    }
}
