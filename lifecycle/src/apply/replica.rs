//! Commands about replicas: a replica is bound to the store it first came with, and its id dies with its membership.

use std::sync::Arc;

use crate::apply::event::{EVENT_SOURCE, Note, subject};
use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::object::event::EventType;
use crate::object::replica::{REPLICAS_MAX, ReplicaId, ReplicaRecord, ReplicaTrouble, VERSION_MAX};
use crate::rejection::Rejection;
use crate::value::invalid::Invalid;
use crate::value::meta::Uid;
use crate::value::text::Text;

impl Application<'_> {
    pub(crate) fn announce_replica(&mut self, replica: &ReplicaRecord) -> ApplyResult {
        let id = replica.id;
        if replica.version.len() > VERSION_MAX {
            let rule = format!("{} bytes are too many: at most {VERSION_MAX}", replica.version.len());
            return Err(Invalid::new("replica.version", rule).into());
        }
        let effect = match self.state.replicas.get(&id) {
            None => ReceiptEffect::Created,
            Some(known) if known.retired => return Err(Rejection::ReplicaRetired { id }),
            Some(known) if known.store != replica.store => return Err(Rejection::ReplicaStoreChanged { id }),
            Some(known) if known.version != replica.version => ReceiptEffect::Changed,
            Some(_) => return Ok(self.receipt(ReceiptEffect::Unchanged)),
        };
        self.put_replica(ReplicaRecord { retired: false, ..replica.clone() })?;
        Ok(self.receipt(effect))
    }

    /// An id that was never announced is retired all the same: it must not be used later.
    pub(crate) fn retire_replica(&mut self, id: ReplicaId) -> ApplyResult {
        let (retired, effect) = match self.state.replicas.get(&id) {
            Some(known) if known.retired => return Ok(self.receipt(ReceiptEffect::Unchanged)),
            Some(known) => (ReplicaRecord { retired: true, ..known.as_ref().clone() }, ReceiptEffect::Changed),
            None => {
                let nameless = ReplicaRecord { id, store: Uid::default(), version: Text::default(), retired: true };
                (nameless, ReceiptEffect::Created)
            }
        };
        self.put_replica(retired)?;
        Ok(self.receipt(effect))
    }

    pub(crate) fn report_replica(&mut self, id: ReplicaId, trouble: ReplicaTrouble) -> Receipt {
        let (reason, what) = match trouble {
            ReplicaTrouble::WentBack => ("ReplicaWentBack", "knows less than it acknowledged and takes no part"),
            ReplicaTrouble::Diverged => ("ReplicaDiverged", "has another state than the majority and takes no part"),
            ReplicaTrouble::Disputed => ("ReplicaDisputed", "has another state than another replica"),
            ReplicaTrouble::Halted => ("ReplicaHalted", "panicked on an entry of the log and takes no part"),
        };
        let message = format!("replica {id} {what}; `muster status` says what to do");
        let note = Note { event_type: EventType::Warning, reason, message, source: EVENT_SOURCE };
        self.record_event(subject("Replica", &id.to_string()), note);
        self.receipt(ReceiptEffect::Changed)
    }

    fn put_replica(&mut self, replica: ReplicaRecord) -> Result<(), Rejection> {
        let is_new = !self.state.replicas.contains(&replica.id);
        if is_new && self.state.replicas.len() >= REPLICAS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("replicas"), limit: REPLICAS_MAX as u64 });
        }
        self.touch::<ReplicaRecord>(&replica.id);
        self.state.replicas.insert(Arc::new(replica));
        Ok(())
    }
}
