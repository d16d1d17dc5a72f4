//! An agent's report on the pods of its node: one write.

use muster_lifecycle::command::{AgentOperation, Outcome};
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::write::{AgentWrites, NodeGone};

pub(crate) async fn report_pods(
    writes: &AgentWrites,
    node: &Text,
    incarnation: Incarnation,
    report: v1::PodsReport,
) -> Result<v1::PodsTaken, NodeGone> {
    let sequence = report.sequence;
    let taken = |refused: String| Ok(v1::PodsTaken { sequence, refused });
    let reports = match muster_proto::agent::pods(report) {
        Ok(reports) => reports,
        Err(error) => return taken(error.to_string()),
    };
    let operation = AgentOperation::ReportPods { node: node.clone(), incarnation, reports };
    match writes.submit_report(node, operation).await {
        Ok(Outcome::Done(_)) => taken(String::new()),
        Ok(Outcome::Rejected(Rejection::NotFound { .. } | Rejection::OtherIncarnation { .. })) => Err(NodeGone),
        Ok(Outcome::Rejected(rejection)) => taken(rejection.to_string()),
        Err(error) => taken(error.to_string()),
    }
}
