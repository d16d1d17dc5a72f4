//! Commands about addressing: the plan by which nodes get addresses, and addresses for nodes that have none.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{LIFTS_MAX, Origin, ReceiptEffect};
use crate::object::addressing::Addressing;
use crate::object::record::RecordKey;
use crate::rejection::{Limit, Rejection};
use crate::store::address_index::wants;
use crate::value::text::Text;

impl Application<'_> {
    /// Once there is a plan, it stays: the nodes' addresses come from it.
    pub(crate) fn found_addressing(&mut self, plan: &Addressing) -> ApplyResult {
        if self.state.addressing.is_some() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        plan.check()?;
        self.put_addressing(Addressing { held_until: None, ..plan.clone() });
        self.state.derived.addresses.replan(Some(plan));
        Ok(self.receipt(ReceiptEffect::Created))
    }

    /// IP-7 for nodes that came before there was a plan, or when no block was free.
    pub(crate) fn assign_cidrs(&mut self, origin: &Origin, names: &[Text]) -> ApplyResult {
        if self.state.addressing.is_none() {
            return Err(Rejection::NoAddressing);
        }
        if names.len() > LIFTS_MAX {
            return Err(Rejection::limit(Limit::NodesPerEntry, LIFTS_MAX));
        }
        let mut assigned = 0;
        for name in names {
            let Some(before) = self.state.nodes.get(name).filter(|node| wants(node)).cloned() else { continue };
            let Some(cidrs) = self.allocate() else { break };
            let mut after = before.as_ref().clone();
            after.spec.pod_cidrs = cidrs;
            if self.commit(origin, &before, after).is_ok() {
                assigned += 1;
            }
        }
        Ok(self.receipt(if assigned > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }

    pub(crate) fn put_addressing(&mut self, plan: Addressing) {
        self.state.addressing = Some(Arc::new(plan));
        self.touch_key(RecordKey::Addressing);
    }
}
