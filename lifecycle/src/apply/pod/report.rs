//! Reports of agents about the pods of their node.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::object::node::{ConditionStatus, Incarnation, Node, READY};
use crate::object::pod::{PODS_PER_NODE_MAX, Phase, Pod, PodReport, PodStatus};
use crate::rejection::{Limit, Rejection};
use crate::rule::node_restriction;
use crate::value::text::Text;

/// How many pods one report may contain.
const REPORTS_MAX: usize = 2 * PODS_PER_NODE_MAX;

/// How much of an agent's message about a pod is kept.
const SAID_MAX: usize = 1024;

impl Application<'_> {
    pub(crate) fn report_pods(&mut self, node: &Text, incarnation: Incarnation, reports: &[PodReport]) -> ApplyResult {
        if reports.len() > REPORTS_MAX {
            return Err(Rejection::limit(Limit::PodsPerReport, REPORTS_MAX));
        }
        self.state.admits_carried(node)?;
        let node = self.incarnate(node, incarnation)?;
        node_restriction::pods(&node, reports, |key| self.state.pods.get(key).map(Arc::as_ref))?;
        let changed = reports.iter().filter(|report| self.report_pod(&node, report)).count();
        Ok(self.receipt(if changed > 0 { ReceiptEffect::Changed } else { ReceiptEffect::Unchanged }))
    }

    /// Whether the report changed anything. Reports about pods that are not, or no longer, the node's own do not.
    fn report_pod(&mut self, node: &Node, report: &PodReport) -> bool {
        let own = |pod: &&Arc<Pod>| pod.meta.uid == report.uid && pod.is_bound_to(&node.meta.name, node.incarnation);
        let Some(before) = self.state.pods.get(&report.key).filter(own).cloned() else { return false };
        if report.stopped && before.is_terminating() {
            self.remove_pod(&before);
            return true;
        }
        let mut after = before.as_ref().clone();
        after.status = self.reported_pod(&before.status, report);
        if after == *before {
            return false;
        }
        self.put_pod(after);
        true
    }

    fn reported_pod(&self, before: &PodStatus, report: &PodReport) -> PodStatus {
        let mut status = before.clone();
        // A pod that has ended does not begin again, and a pod has not ended while some of it still runs.
        let is_believed = !before.phase.is_final() && (report.stopped || !report.phase.is_final());
        status.phase = if is_believed { report.phase } else { before.phase };
        status.restarts = report.restarts.max(before.restarts);
        // What the agent says is data.
        status.reason = Text::clipped(&report.reason, SAID_MAX);
        status.message = Text::clipped(&report.message, SAID_MAX);
        if status.phase != Phase::Pending {
            status.started = before.started.or(Some(self.now));
        }
        let is_ready = report.ready && status.phase == Phase::Running;
        let word = if is_ready { ConditionStatus::True } else { ConditionStatus::False };
        if before.condition(READY).map(|ready| ready.status) != Some(word) {
            status.set_condition(READY, word, ("", ""), self.now);
        }
        status
    }
}
