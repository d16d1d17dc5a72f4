//! What becomes of a node's report: nothing if it says what is known, else one write.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::command::{Operation, Outcome, ReceiptEffect};
use muster_lifecycle::node::{Condition, Incarnation, NodeStatus};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use tokio::time::{Instant, timeout_at};

use crate::session::Sessions;

/// How long a report may take to be written, elections included; the agent posts it again after that.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// How a report ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Taken(v1::StatusTaken),
    /// The node is no longer the one that reports.
    Gone,
}

impl Sessions {
    /// One at a time per node: the next is compared with what this one made of the state. It is parsed now that it is
    /// its turn, since most of those that came quicker than they could be written were replaced by newer ones.
    pub(crate) fn report(
        &self,
        (node, incarnation): (Text, Incarnation),
        report: v1::StatusReport,
    ) -> BoxFuture<'static, Reported> {
        let sessions = self.clone();
        async move { sessions.take_report(node, incarnation, report).await }.boxed()
    }

    async fn take_report(&self, name: Text, incarnation: Incarnation, report: v1::StatusReport) -> Reported {
        let sequence = report.sequence;
        let parsed = muster_proto::agent::status(&report)
            .and_then(|status| Ok((Box::new(status), muster_proto::agent::running(report.running.as_ref())?)));
        let (status, running) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return refused(sequence, error.to_string()),
        };
        let current = self.replica().current();
        let Some(node) = current.state.node(&name).filter(|node| node.incarnation == incarnation) else {
            return Reported::Gone;
        };
        if tells_nothing_new(&node.status, &status) {
            return taken(sequence, false);
        }
        let deadline = Instant::now() + REPORT_LIMIT;
        let operation = Operation::ReportStatus { name: name.clone(), incarnation, status, running };
        let settled = match self.write_surely(&name, operation, deadline).await {
            Ok(settled) => settled,
            Err(error) => return refused(sequence, error.to_string()),
        };
        // What it did is the base of the next comparison. If this replica lags so far behind, that merely writes again.
        let _ = timeout_at(deadline, self.replica().feed().wait_applied(settled.index)).await;
        match settled.outcome {
            Outcome::Done(receipt) => taken(sequence, receipt.effect != ReceiptEffect::Unchanged),
            Outcome::Rejected(Rejection::NotFound { .. } | Rejection::OtherIncarnation { .. }) => Reported::Gone,
            Outcome::Rejected(rejection) => refused(sequence, rejection.to_string()),
        }
    }
}

fn refused(sequence: u64, why: String) -> Reported {
    Reported::Taken(v1::StatusTaken { sequence, written: false, refused: why })
}

fn taken(sequence: u64, written: bool) -> Reported {
    Reported::Taken(v1::StatusTaken { sequence, written, refused: String::new() })
}

/// Whether writing the report would change nothing: times are the cluster's own, and conditions that it does not
/// mention stay as they are.
fn tells_nothing_new(known: &NodeStatus, report: &NodeStatus) -> bool {
    let same = |condition: &Condition| {
        known.condition(&condition.kind).is_some_and(|known| {
            (known.status, &known.reason, &known.message) == (condition.status, &condition.reason, &condition.message)
        })
    };
    let NodeStatus { capacity, allocatable, conditions, addresses, info } = report;
    (capacity, allocatable, addresses, info) == (&known.capacity, &known.allocatable, &known.addresses, &known.info)
        && conditions.iter().all(same)
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::node::{Address, ConditionStatus};
    use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};

    use super::*;

    #[test]
    fn s_1_heartbeat_times_alone_are_no_news() {
        let known = status(&[("Ready", ConditionStatus::True, 1), ("NetworkUnavailable", ConditionStatus::False, 1)]);
        assert!(tells_nothing_new(&known, &status(&[("Ready", ConditionStatus::True, 99)])));
        assert!(!tells_nothing_new(&known, &status(&[("Ready", ConditionStatus::False, 1)])));
        assert!(!tells_nothing_new(&known, &status(&[("DiskPressure", ConditionStatus::False, 1)])));
    }

    #[test]
    fn everything_else_is_news() {
        let known = status(&[("Ready", ConditionStatus::True, 1)]);
        let mut reworded = known.clone();
        reworded.conditions[0].message = "now with a swap file".into();
        assert!(!tells_nothing_new(&known, &reworded));
        let address = Address { kind: "InternalIP".into(), address: "10.0.0.1".into() };
        assert!(!tells_nothing_new(&known, &NodeStatus { addresses: [address].into(), ..known.clone() }));
        assert!(!tells_nothing_new(&known, &NodeStatus { info: Some(Box::default()), ..known.clone() }));
    }

    fn status(conditions: &[(&str, ConditionStatus, u64)]) -> NodeStatus {
        let condition = |(kind, status, at): &(&str, ConditionStatus, u64)| Condition {
            kind: (*kind).into(),
            status: *status,
            last_heartbeat: Some(Stamp { cluster: ClusterTime(*at), wall: WallTime(0) }),
            last_transition: None,
            reason: "R".into(),
            message: "m".into(),
        };
        NodeStatus { conditions: conditions.iter().map(condition).collect(), ..NodeStatus::default() }
    }
}
