//! What becomes of an agent's report on the pods of its node: one write.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::command::{Operation, Outcome};
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use tokio::time::{Instant, timeout_at};

use crate::session::Sessions;

/// How long a report may take to be written, elections included; the agent says it again after that.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// How a report on pods ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodsReported {
    Taken(v1::PodsTaken),
    /// The node is no longer the one that reports.
    Gone,
}

impl Sessions {
    pub(crate) fn report_pods(
        &self,
        (node, incarnation): (Text, Incarnation),
        report: v1::PodsReport,
    ) -> BoxFuture<'static, PodsReported> {
        let sessions = self.clone();
        async move { sessions.take_pods(node, incarnation, report).await }.boxed()
    }

    async fn take_pods(&self, node: Text, incarnation: Incarnation, report: v1::PodsReport) -> PodsReported {
        let sequence = report.sequence;
        let taken = |refused: String| PodsReported::Taken(v1::PodsTaken { sequence, refused });
        let reports = match muster_proto::agent::pods(report) {
            Ok(reports) => reports,
            Err(error) => return taken(error.to_string()),
        };
        let deadline = Instant::now() + REPORT_LIMIT;
        let operation = Operation::ReportPods { node: node.clone(), incarnation, reports };
        let settled = match self.write_surely(&node, operation, deadline).await {
            Ok(settled) => settled,
            Err(error) => return taken(error.to_string()),
        };
        // A status that follows is compared with what this one made of the state.
        let _ = timeout_at(deadline, self.replica().feed().wait_applied(settled.index)).await;
        match settled.outcome {
            Outcome::Done(_) => taken(String::new()),
            Outcome::Rejected(Rejection::NotFound { .. } | Rejection::OtherIncarnation { .. }) => PodsReported::Gone,
            Outcome::Rejected(rejection) => taken(rejection.to_string()),
        }
    }
}
