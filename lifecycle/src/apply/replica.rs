//! Commands about replicas: a replica is bound to the store it first came with, and its id dies with its membership.

use std::sync::Arc;

use crate::apply::event::subject;
use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::object::event::FleetHappening;
use crate::object::replica::{REPLICAS_MAX, ReplicaId, ReplicaRecord, ReplicaTrouble, check_version};
use crate::rejection::{Limit, Rejection};
use crate::value::level::LevelRange;
use crate::value::meta::Uid;
use crate::value::text::Text;

impl Application<'_> {
    pub(crate) fn announce_replica(&mut self, replica: &ReplicaRecord) -> ApplyResult {
        let id = replica.id;
        check_version(&replica.version)?;
        let in_force = self.state.level_in_force();
        if !replica.levels.contains(in_force.level) {
            let (level, raised_by) = (in_force.level, in_force.raised_by.clone());
            return Err(Rejection::LevelNotSpoken { id, levels: replica.levels, level, raised_by });
        }
        let effect = match self.state.replicas.get(&id) {
            None => ReceiptEffect::Created,
            Some(known) if known.retired => return Err(Rejection::ReplicaRetired { id }),
            Some(known) if known.store != replica.store => return Err(Rejection::ReplicaStoreChanged { id }),
            Some(known) if known.version != replica.version || known.levels != replica.levels => ReceiptEffect::Changed,
            Some(_) => return Ok(self.receipt(ReceiptEffect::Unchanged)),
        };
        self.put_replica(ReplicaRecord { retired: false, announced: self.now.cluster, ..replica.clone() })?;
        Ok(self.receipt(effect))
    }

    /// An id that was never announced is retired all the same: it must not be used later.
    pub(crate) fn retire_replica(&mut self, id: ReplicaId) -> ApplyResult {
        let (retired, effect) = match self.state.replicas.get(&id) {
            Some(known) if known.retired => return Ok(self.receipt(ReceiptEffect::Unchanged)),
            Some(known) => (ReplicaRecord { retired: true, ..known.as_ref().clone() }, ReceiptEffect::Changed),
            None => {
                let nameless = ReplicaRecord::new(id, Uid::default(), Text::default(), LevelRange::default());
                let nameless = ReplicaRecord { retired: true, ..nameless };
                (nameless, ReceiptEffect::Created)
            }
        };
        self.put_replica(retired)?;
        Ok(self.receipt(effect))
    }

    pub(crate) fn report_replica(&mut self, id: ReplicaId, trouble: ReplicaTrouble) -> Receipt {
        self.record_event(subject("Replica", &id.to_string()), FleetHappening::ReplicaInTrouble { trouble });
        self.receipt(ReceiptEffect::Changed)
    }

    fn put_replica(&mut self, replica: ReplicaRecord) -> Result<(), Rejection> {
        let is_new = !self.state.replicas.contains(&replica.id);
        if is_new && self.state.replicas.len() >= REPLICAS_MAX {
            return Err(Rejection::limit(Limit::Replicas, REPLICAS_MAX));
        }
        self.touch::<ReplicaRecord>(&replica.id);
        self.state.replicas.insert(Arc::new(replica));
        Ok(())
    }
}
