//! Registration: an agent brings its node.
//!
//! An agent speaks for its own node only. Of a node that exists it may change the status and the labels that describe
//! the machine. What operators decided (taints, cordon, other labels) stays theirs (RG-4).

use crate::apply::node::status::reported;
use crate::apply::{Application, ApplyResult};
use crate::command::Origin;
use crate::object::node::NodeDraft;
use crate::rule::{node_restriction, reconcile};
use crate::value::meta::Uid;

impl Application<'_> {
    pub(crate) fn register_node(
        &mut self,
        origin: &Origin,
        draft: &NodeDraft,
        uid: Uid,
        running: Option<&[Uid]>,
    ) -> ApplyResult {
        self.state.admits_carried(&draft.name)?;
        let known = self.state.nodes.get(&draft.name).cloned();
        node_restriction::registration(draft, known.as_deref())?;
        let Some(before) = known else { return self.register_new(origin, draft, uid, running) };
        let mut after = before.as_ref().clone();
        for (key, value) in reconcile::outdated_labels(&before.meta.labels, draft.labels.as_ref()) {
            after.meta.labels.insert(key, value);
        }
        if let Some(status) = &draft.status {
            after.status = reported(&before.status, status, self.now);
        }
        let receipt = self.commit_report(origin, &before, after, running)?;
        self.release_stopped(&draft.name, Some(before.incarnation), running);
        Ok(receipt)
    }

    /// The node was deleted while its machine went on: pods that still run from its former life are not its own.
    fn register_new(&mut self, origin: &Origin, draft: &NodeDraft, uid: Uid, running: Option<&[Uid]>) -> ApplyResult {
        let mut node = draft.to_new_node(uid, self.now);
        // As in any report, the cluster's times count.
        for condition in &mut node.status.conditions {
            (condition.last_heartbeat, condition.last_transition) = (Some(self.now), Some(self.now));
        }
        self.require_stopped(None, &node, running)?;
        let receipt = self.create(origin, node)?;
        let incarnation = self.state.nodes.get(&draft.name).map(|node| node.incarnation);
        self.release_stopped(&draft.name, incarnation, running);
        Ok(receipt)
    }
}
