//! Evictions of nodes: the taint and the zone's token in one entry, and taking evictions back.
//!
//! Whether the node still waits, and at which rate its zone evicts, is worked out anew on the state that the entry
//! finds.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{LIFTS_MAX, Origin, ReceiptEffect};
use crate::object::event::NodeHappening;
use crate::object::node::{Incarnation, Node};
use crate::object::taint::Taint;
use crate::object::zone::{ZoneKey, ZoneRecord};
use crate::rejection::{Limit, Rejection};
use crate::rule::condition_taint::{self, Absence, NoExecuteAction};
use crate::rule::consequences;
use crate::value::text::Text;

impl Application<'_> {
    /// I-04: the token goes in the entry that adds the taint, from a bucket that is the same for every leader.
    pub(crate) fn evict_node(&mut self, origin: &Origin, name: &Text, incarnation: Incarnation) -> ApplyResult {
        let before = self.incarnate(name, incarnation)?;
        let absence = self.expect_waiting(&before)?;
        let mut zone = self.expect_assessed(&before)?;
        if self.state.policy_state.spared_until().is_some_and(|until| self.now.cluster < until) {
            return Err(Rejection::Spared);
        }
        if !zone.bucket.take(self.now.cluster) {
            return Err(Rejection::NoToken { zone: zone.key });
        }
        let mut after = before.as_ref().clone();
        let taint = absence.taint(self.now);
        // The event has a time of its own.
        let told = Taint { added: None, ..taint.clone() };
        after.spec.taints = after.spec.taints.into_iter().chain([taint]).collect();
        let receipt = self.commit(origin, &before, after)?;
        let happening = NodeHappening::TaintedForEviction { taint: told, zone: zone.key.clone(), rate: zone.zone.rate };
        zone.evictions += 1;
        self.touch::<ZoneRecord>(&zone.key);
        self.state.zones.insert(Arc::new(zone));
        self.note(&before, happening);
        Ok(receipt)
    }

    fn expect_waiting(&self, node: &Node) -> Result<Absence, Rejection> {
        match condition_taint::no_execute_action(&node.status.conditions, &node.spec.taints) {
            NoExecuteAction::Enqueue(absence) => Ok(absence),
            NoExecuteAction::Swap { .. } | NoExecuteAction::Clear(_) | NoExecuteAction::Nothing => {
                Err(Rejection::NotWaiting { name: node.meta.name.clone() })
            }
        }
    }

    /// No token is spent on an outdated view of the zones.
    fn expect_assessed(&self, node: &Node) -> Result<ZoneRecord, Rejection> {
        let key = ZoneKey::from_labels(&node.meta.labels);
        let record = self.state.zones.get(&key).ok_or(Rejection::ZonesMoved)?;
        match self.state.zone_transition(self.now).is_quiet() {
            true => Ok(record.as_ref().clone()),
            false => Err(Rejection::ZonesMoved),
        }
    }

    pub(crate) fn lift_evictions(&mut self, origin: &Origin, names: &[Text]) -> ApplyResult {
        if !self.state.policy_state.all_disrupted {
            return Err(Rejection::NotAllDisrupted);
        }
        if names.len() > LIFTS_MAX {
            return Err(Rejection::limit(Limit::NodesPerEntry, LIFTS_MAX));
        }
        let lifted = names.iter().filter(|name| self.lift_eviction(origin, name)).count();
        Ok(self.receipt(if lifted > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }

    /// Whether there was an eviction to take back. A node that only gets lighter is never refused for its weight.
    fn lift_eviction(&mut self, origin: &Origin, name: &Text) -> bool {
        let Some(before) = self.state.nodes.get(name).cloned() else { return false };
        let mut after = before.as_ref().clone();
        let mut taints = after.spec.taints.into_vec();
        [Absence::NotReady, Absence::Unreachable]
            .into_iter()
            .for_each(|absence| consequences::lift(&mut taints, absence));
        after.spec.taints = taints.into_boxed_slice();
        self.commit(origin, &before, after).is_ok_and(|receipt| receipt.effect == ReceiptEffect::Changed)
    }
}
