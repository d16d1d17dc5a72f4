//! Entitlement: each origin against each operation.

use muster_lifecycle::command::{Command, LeaderOperation, Operation, Origin};
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;
use muster_lifecycle::violation::AccessViolation;

use crate::command::every_operation::every_operation;
use crate::fixture::cluster::*;

#[test]
fn each_origin_may_send_its_own_operations_only() {
    let own = Origin::Node { name: Text::from("a") };
    let other = Origin::Node { name: Text::from("b") };
    let leader = Origin::Controller { term: TERM };
    // Of the operations of operators and replicas, of the leader, and of agents.
    let origins = [
        (alice(), "alice", [true, false, false]),
        (leader, "the controller", [true, true, false]),
        (Origin::Replica { id: ReplicaId(2) }, "replica 2", [true, false, false]),
        (own, "its agent", [false, false, true]),
        (other, "its agent", [false, false, false]),
    ];
    for operation in every_operation() {
        for (origin, shown, [open, leading, agent]) in &origins {
            let allowed = match operation {
                Operation::Operator(_) | Operation::Replica(_) => *open,
                Operation::Leader(_) => *leading,
                Operation::Agent(_) => *agent,
            };
            let command = Command { origin: origin.clone(), request: None, operation: operation.clone() };
            let mut cluster = Cluster::with_node("a");
            if allowed {
                let told = told(&cluster.submit(command).outcomes[0]);
                assert!(!told.contains("is not for"), "{told}");
            } else if let (Operation::Agent(_), Origin::Node { .. }) = (&operation, origin) {
                assert_eq!(cluster.refused(command), of_another("a", "b"));
            } else {
                let what = Text::from(operation.label());
                let refused = cluster.refused(command);
                assert_eq!(refused.to_string(), format!("{what} is not for {shown} to do"));
                assert_eq!(refused, Rejection::NotEntitled { what, origin: origin.author() });
            }
        }
    }
}

fn of_another(other: &str, own: &str) -> Rejection {
    let (other, own) = (Text::from(other), Text::from(own));
    Rejection::Forbidden(Invalid::new("metadata.name", AccessViolation::OtherNode { other, own }))
}

#[test]
fn a_refusal_names_the_operation_and_the_user() {
    let refused = Cluster::default().rejected(LeaderOperation::AssessZones).to_string();
    assert_eq!(refused, "assess-zones is not for alice to do");
}
