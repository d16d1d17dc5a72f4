//! Commands about the fleet's policy.

use crate::apply::event::subject;
use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, ReceiptEffect};
use crate::object::event::FleetHappening;
use crate::object::policy::Policy;
use crate::object::policy_state::FleetPolicyState;
use crate::object::record::RecordKey;
use crate::rejection::{Limit, Rejection};
use crate::value::invalid::Invalid;
use crate::value::text::Text;
use crate::value::violation::SettingViolation;

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
            return Err(Rejection::limit(Limit::Settings, CHANGES_MAX));
        }
        let before = self.state.policy().clone();
        let mut policy = before.clone();
        for (index, (name, value)) in changes.iter().enumerate() {
            if changes[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Invalid::new(Text::clipped(name, 64), SettingViolation::NamedTwice).into());
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
                let (from, to) = (Text::from(from), Text::from(to));
                let happening = FleetHappening::PolicyChanged { from, to, by: origin.author() };
                self.record_event(subject("Policy", name), happening);
            }
        }
    }
}
