//! Golden bytes of a whole state, and its digest: what `apply` makes of every operation.
//!
//! An entry that is applied differently without a new level would make the digests of two builds differ.

use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::command::{Command, Operation, Origin};
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::text::Text;

use crate::command::every_operation::every_operation;
use crate::fixture::cluster::*;
use crate::fixture::pods::{create_pod, pod};

/// Every operation in the name of an origin that may ask for it, each with a request id, so that its outcome is kept.
fn after_every_operation() -> Cluster {
    let mut cluster = Cluster::with_node("a");
    cluster.create(draft("silent"));
    cluster.done(replace_status("silent", ready(ConditionStatus::True)));
    cluster.done(create_pod(pod("waiting")));
    for (client, operation) in (1..).zip(every_operation()) {
        let origin = match &operation {
            Operation::Operator(_) | Operation::Replica(_) => alice(),
            Operation::Leader(_) => Origin::Controller { term: cluster.term() },
            Operation::Agent(operation) => Origin::Node { name: Text::from(operation.node_name()) },
        };
        cluster.wait(1);
        cluster.submit(Command { origin, request: request(client, 1), operation });
    }
    cluster
}

#[test]
fn a_state_keeps_its_bytes_and_its_digest() {
    let cluster = after_every_operation();
    let mut golden = GoldenBytes::default();
    for (key, value) in cluster.state.records() {
        golden.pin(key.to_string(), value);
    }
    golden.pin("digest", cluster.state.digest().0.to_be_bytes());
    golden.check(Path::new("golden/state.txt"));
}

/// The digest covers what is told, so a state with another story has another digest.
#[test]
fn a_different_story_has_a_different_digest() {
    let (one, mut other) = (after_every_operation(), after_every_operation());
    assert_eq!(one.state.digest(), other.state.digest());
    other.done(muster_lifecycle::command::OperatorOperation::RevokeNode { name: Text::from("other") });
    assert_ne!(one.state.digest(), other.state.digest());
}
