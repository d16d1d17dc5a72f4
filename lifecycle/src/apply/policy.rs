//! Commands about the fleet as a whole: its policy, and its aggregators.

use std::sync::Arc;

use crate::apply::lifecycle::subject;
use crate::apply::{Application, ApplyResult, EVENT_SOURCE, Note};
use crate::command::{Origin, ReceiptEffect};
use crate::object::aggregator::{AGGREGATORS_MAX, AggregatorRecord};
use crate::object::event::EventType;
use crate::object::policy::Policy;
use crate::object::policy_state::FleetPolicyState;
use crate::object::record::RecordKey;
use crate::rejection::Rejection;
use crate::value::invalid::Invalid;
use crate::value::text::Text;

const POLICY_CHANGED: &str = "PolicyChanged";

/// More than there are settings, so a longer list must name one twice.
const CHANGES_MAX: usize = 64;

impl Application<'_> {
    /// Once decided, the policy belongs to the cluster: a replica that starts with other flags does not change it.
    pub(crate) fn found_policy(&mut self, policy: &Policy) -> ApplyResult {
        if self.state.policy_state.founded {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        policy.validate()?;
        self.govern_by(policy);
        Ok(self.receipt(ReceiptEffect::Created))
    }

    pub(crate) fn set_policy(&mut self, origin: &Origin, changes: &[(Text, Text)]) -> ApplyResult {
        if changes.len() > CHANGES_MAX {
            return Err(Rejection::LimitReached { what: Text::from("settings"), limit: CHANGES_MAX as u64 });
        }
        let before = self.state.policy().clone();
        let mut policy = before.clone();
        for (index, (name, value)) in changes.iter().enumerate() {
            if changes[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Invalid::new(Text::clipped(name, 64), "is named twice in one command").into());
            }
            policy.set(name, value)?;
        }
        policy.validate()?;
        if policy == before && (self.state.policy_state.founded || changes.is_empty()) {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        self.govern_by(&policy);
        self.note_policy(origin, &before, &policy);
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    fn govern_by(&mut self, policy: &Policy) {
        let nodes = self.state.nodes.len();
        self.set_policy_state(self.state.policy_state.governed_by(policy.clone(), nodes, self.now.cluster));
    }

    pub(crate) fn set_policy_state(&mut self, policy_state: FleetPolicyState) {
        self.state.policy_state = policy_state;
        self.touch_key(RecordKey::FleetPolicyState);
    }

    fn note_policy(&mut self, origin: &Origin, before: &Policy, after: &Policy) {
        for ((name, from), (_, to)) in before.settings().into_iter().zip(after.settings()) {
            if from != to {
                let message = format!("{name} was changed from {from} to {to} by {origin}");
                let note =
                    Note { event_type: EventType::Normal, reason: POLICY_CHANGED, message, source: EVENT_SOURCE };
                self.record_event(subject("Policy", name), note);
            }
        }
    }

    pub(crate) fn set_aggregator(&mut self, name: &Text, nodes: &[Text]) -> ApplyResult {
        let record = AggregatorRecord { name: name.clone(), nodes: nodes.into() };
        let known = self.state.aggregators.get(name).cloned();
        let effect = match (&known, nodes.is_empty()) {
            (None, true) => {
                let rule = "is not known and cannot be forgotten: name the nodes it may carry";
                return Err(Invalid::new("name", format!("{:?} {rule}", Text::clipped(name, 253))).into());
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

    fn put_aggregator(&mut self, record: AggregatorRecord, effect: ReceiptEffect) -> Result<(), Rejection> {
        if effect == ReceiptEffect::Created && self.state.aggregators.len() >= AGGREGATORS_MAX {
            return Err(Rejection::LimitReached { what: Text::from("aggregators"), limit: AGGREGATORS_MAX as u64 });
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
