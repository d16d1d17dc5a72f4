//! Silence: the leader marks a node that it has not heard, or says that it cannot watch one.
//!
//! The verdict names what it was decided on (an incarnation, a Ready status, a time), so that one that was overtaken is
//! rejected instead of done.

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, ReceiptEffect, Sighting};
use crate::judge::health;
use crate::object::event::{LastHeard, NodeHappening};
use crate::object::node::{ConditionStatus, Incarnation};
use crate::rejection::Rejection;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Period};

/// A verdict that takes longer than this from its making to its place in the log must be made anew.
const VERDICT_LIFETIME: Period = Period::from_secs(5);

/// How much of a crash an event keeps.
const CRASH_MAX: usize = 512;

impl Application<'_> {
    pub(crate) fn mark_silent(
        &mut self,
        origin: &Origin,
        name: &Text,
        incarnation: Incarnation,
        from: Option<ConditionStatus>,
        heard: Option<Sighting>,
        decided: ClusterTime,
    ) -> ApplyResult {
        let before = self.incarnate(name, incarnation)?;
        let actual = before.status.ready().map(|ready| ready.status);
        if actual != from {
            return Err(Rejection::ReadyMoved { name: before.meta.name.clone(), expected: from, actual });
        }
        self.expect_timely(decided)?;
        let mut after = before.as_ref().clone();
        let conditions = &before.status.conditions;
        after.status.conditions = health::silenced(conditions, before.meta.created, self.now);
        let receipt = self.commit(origin, &before, after)?;
        self.mark_endings_unseen(&before);
        // PD-1: this is no news of a node that was not ready before.
        if from == Some(ConditionStatus::True) {
            let now = self.now.cluster;
            let heard = heard.map(|heard| last_heard(heard, now));
            self.note(&before, NodeHappening::FellSilent { heard });
            self.mark_tenants_unready(&before);
        }
        Ok(receipt)
    }

    /// A leader may not know yet of a reprieve when it judges, and a verdict may wait long for its place in the log.
    ///
    /// Its age is that at the entry's stamp. An entry that is stamped, and that a log which stands still commits later,
    /// says nothing of how much later (docs/adr/0016): the node that was heard meanwhile is asked for its status by the
    /// same entry, and is not evicted before it had time to report.
    fn expect_timely(&self, decided: ClusterTime) -> Result<(), Rejection> {
        let now = self.now.cluster;
        if self.state.policy_state.spared_until().is_some_and(|until| now <= until) {
            return Err(Rejection::Spared);
        }
        if now > VERDICT_LIFETIME.after(decided) {
            return Err(Rejection::Stale { age: Period(now.0 - decided.0) });
        }
        Ok(())
    }

    pub(crate) fn note_quarantine(&mut self, name: &Text, incarnation: Incarnation, reason: &Text) -> ApplyResult {
        let node = self.incarnate(name, incarnation)?;
        self.note(&node, NodeHappening::Quarantined { crash: Text::clipped(reason, CRASH_MAX) });
        Ok(self.receipt(ReceiptEffect::Changed))
    }
}

fn last_heard(Sighting { at, through }: Sighting, now: ClusterTime) -> LastHeard {
    LastHeard { before: Period(now.0.saturating_sub(at.0)), through }
}
