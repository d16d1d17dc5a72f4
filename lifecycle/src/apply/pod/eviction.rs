//! Evictions of pods: the leader found that a pod's time on its tainted node is over.
//!
//! The decision is checked again on the state that the entry finds: the taint may be gone, the pod another one. Then
//! nothing happens.

use crate::apply::{Application, ApplyResult};
use crate::command::{Receipt, ReceiptEffect};
use crate::object::event::PodHappening;
use crate::object::node::ConditionStatus;
use crate::object::pod::{DISRUPTION_TARGET, PodKey};
use crate::object::taint::Taint;
use crate::rejection::Rejection;
use crate::rule::condition_taint::Absence;
use crate::rule::taint_eviction;
use crate::value::meta::Uid;
use crate::value::text::Text;

/// Reason and message of the condition. Both are upstream's, word for word, and stored as data: tools look for them.
const BY_TAINT_MANAGER: (&str, &str) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");

impl Application<'_> {
    /// TE-8, with what upstream leaves out: the taint must still be there, and the pod must be the one meant.
    pub(crate) fn evict_pod(&mut self, key: &PodKey, uid: Uid) -> ApplyResult {
        let before = self.expect_pod_of(key, uid)?;
        let not_leaving = || Rejection::NotLeaving { name: Text::from(key.to_string()) };
        let node = self.state.node_of(&before).cloned().ok_or_else(not_leaving)?;
        let (taint, _) = taint_eviction::cause(&before, &node.spec.taints)
            .filter(|(_, at)| before.is_active() && *at <= self.now.cluster)
            .ok_or_else(not_leaving)?;
        // Z-6: while all zones are fully disrupted, and for a while after, no pod leaves a node for being lost.
        if Absence::of(taint).is_some() && self.state.policy_state.suspends_evictions(self.now.cluster) {
            return Err(Rejection::Spared);
        }
        let mut status = before.status.clone();
        status.set_condition(DISRUPTION_TARGET, ConditionStatus::True, BY_TAINT_MANAGER, self.now);
        let pod = self.end_pod(&before, before.spec.grace, status);
        // The event has a time of its own.
        self.note_pod(&pod, PodHappening::Evicted { taint: Taint { added: None, ..taint.clone() } });
        Ok(Receipt { revision: pod.meta.revision, effect: ReceiptEffect::Changed })
    }
}
