//! A node's report on its status: one write, or none if it says what is known (S-1).

use muster_lifecycle::command::{AgentOperation, Outcome, ReceiptEffect};
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::session::{changes_nothing, frees_names};
use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::write::{AgentWrites, NodeGone};

/// To be called for one report of a node at a time: the next is compared with what this one made of the state.
pub(crate) async fn report_status(
    writes: &AgentWrites,
    name: &Text,
    incarnation: Incarnation,
    report: v1::StatusReport,
) -> Result<v1::StatusTaken, NodeGone> {
    let sequence = report.sequence;
    let taken = |written| Ok(v1::StatusTaken { sequence, written, refused: String::new() });
    let refused = |why: String| Ok(v1::StatusTaken { sequence, written: false, refused: why });
    let parsed = muster_proto::agent::status(&report)
        .and_then(|status| Ok((Box::new(status), muster_proto::agent::running(report.running.as_ref())?)));
    let (status, running) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refused(error.to_string()),
    };
    let current = writes.replica().current();
    let node = current.state.node(name).filter(|node| node.incarnation == incarnation).ok_or(NodeGone)?;
    if changes_nothing(&node.status, &status) && !frees_names(&current.state, node, running.as_deref()) {
        return taken(false);
    }
    let operation = AgentOperation::ReportStatus { name: name.clone(), incarnation, status, running };
    match writes.submit_report(name, operation).await {
        Ok(Outcome::Done(receipt)) => taken(receipt.effect != ReceiptEffect::Unchanged),
        Ok(Outcome::Rejected(Rejection::NotFound { .. } | Rejection::OtherIncarnation { .. })) => Err(NodeGone),
        Ok(Outcome::Rejected(rejection)) => refused(rejection.to_string()),
        Err(error) => refused(error.to_string()),
    }
}
