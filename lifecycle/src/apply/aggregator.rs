//! Commands about aggregators: which nodes each may carry.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::object::aggregator::{AGGREGATORS_MAX, AggregatorRecord};
use crate::rehearsal;
use crate::rejection::{Limit, Rejection};
use crate::value::invalid::Invalid;
use crate::value::text::Text;
use crate::value::violation::AccessViolation;

impl Application<'_> {
    pub(crate) fn set_aggregator(&mut self, name: &Text, nodes: &[Text]) -> ApplyResult {
        let known = self.state.aggregators.get(name).cloned();
        let note = known.as_ref().map_or_else(Text::default, |known| known.note.clone());
        let record = AggregatorRecord { name: name.clone(), nodes: nodes.into(), note };
        let effect = match (&known, nodes.is_empty()) {
            (None, true) => {
                let name = Text::clipped(name, 253);
                return Err(Invalid::new("name", AccessViolation::NoSuchAggregator { name }).into());
            }
            (Some(_), true) => ReceiptEffect::Deleted,
            (Some(known), false) if **known == record => return Ok(self.receipt(ReceiptEffect::Unchanged)),
            (Some(_), false) => ReceiptEffect::Changed,
            (None, false) => ReceiptEffect::Created,
        };
        record.check()?;
        self.put_aggregator(record, effect)?;
        Ok(self.receipt(effect))
    }

    /// The command of the rehearsal level.
    pub(crate) fn rehearse_note(&mut self, name: &Text, note: &Text) -> ApplyResult {
        rehearsal::check_note(note)?;
        let Some(known) = self.state.aggregators.get(name).cloned() else {
            return Err(
                Invalid::new("name", AccessViolation::UnknownAggregator { name: Text::clipped(name, 253) }).into()
            );
        };
        if known.note == *note {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        self.put_aggregator(AggregatorRecord { note: note.clone(), ..known.as_ref().clone() }, ReceiptEffect::Changed)?;
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    fn put_aggregator(&mut self, record: AggregatorRecord, effect: ReceiptEffect) -> Result<(), Rejection> {
        if effect == ReceiptEffect::Created && self.state.aggregators.len() >= AGGREGATORS_MAX {
            return Err(Rejection::limit(Limit::Aggregators, AGGREGATORS_MAX));
        }
        self.touch::<AggregatorRecord>(&record.name);
        match effect {
            ReceiptEffect::Deleted => drop(self.state.aggregators.remove(&record.name)),
            ReceiptEffect::Created | ReceiptEffect::Changed | ReceiptEffect::Unchanged => {
                self.state.aggregators.insert(Arc::new(record));
            }
        }
        Ok(())
    }
}
