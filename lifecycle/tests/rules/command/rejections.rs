//! Rejections that are not about a field.

use muster_lifecycle::command::{Command, OperatorOperation, Origin, Precondition};
use muster_lifecycle::kind::Kind;
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;

#[test]
fn an_absent_object_is_not_found() {
    let mut cluster = Cluster::with_node("a");
    let missing = [
        replace(draft("b")),
        replace_status("b", Default::default()),
        label("b", "k=v", false),
        taint("b", "t:NoSchedule", "", false),
        cordon("b", true),
        delete("b"),
    ];
    for operation in missing {
        assert_eq!(cluster.rejected(operation), Rejection::NotFound { kind: Kind::Node, name: Text::from("b") });
    }
    let quoted = cluster.rejected(delete(&"x".repeat(100_000))).to_string();
    assert!(quoted.len() < 300, "what was sent is quoted in part");
}

#[test]
fn a_taken_name_already_exists() {
    let mut cluster = Cluster::with_node("a");
    assert_eq!(cluster.rejected(create(draft("a"))).to_string(), "node \"a\" already exists");
}

#[test]
fn a_stale_revision_conflicts_and_both_are_shown() {
    let mut cluster = Cluster::with_node("a");
    let seen = cluster.node("a").meta.revision;
    cluster.done(label("a", "k=v", false));
    let delete_if = |revision: Revision| OperatorOperation::DeleteNode {
        name: Text::from("a"),
        precondition: Precondition { revision: Some(revision), uid: None },
    };
    let current = cluster.node("a").meta.revision;
    let message = format!("conflict on node \"a\": expected resource version {seen}, it is {current}");
    assert_eq!(cluster.rejected(delete_if(seen)).to_string(), message);
    assert_eq!(cluster.told(delete_if(current)), "deleted");
}

#[test]
fn the_uid_is_checked_before_the_revision() {
    let mut cluster = Cluster::with_node("a");
    let precondition = Precondition { revision: Some(Revision(99)), uid: Some(Uid(99)) };
    let rejection =
        cluster.rejected(OperatorOperation::CordonNode { name: Text::from("a"), unschedulable: true, precondition });
    assert!(matches!(rejection, Rejection::OtherUid { expected: Uid(99), .. }));
}

#[test]
fn an_apply_that_expects_a_node_does_not_create_one() {
    let mut cluster = Cluster::default();
    let precondition = Precondition { revision: Some(Revision(1)), uid: None };
    let apply = OperatorOperation::ApplyNode { draft: Box::new(draft("a")), uid: Uid(1), precondition };
    assert_eq!(cluster.rejected(apply).to_string(), "node \"a\" not found");
}

#[test]
fn a_controller_acts_only_in_the_term_it_proposed_in() {
    let mut cluster = Cluster::with_node("a");
    let in_term =
        |term| Command { origin: Origin::Controller { term }, request: None, operation: cordon("a", true).into() };
    let foreign = cluster.submit(in_term(TERM - 1));
    let message = "proposed in term 2, committed in term 3: the proposer no longer led";
    assert_eq!(told(&foreign.outcomes[0]), message);
    assert!(foreign.changes.is_empty());
    let own = cluster.submit(in_term(TERM));
    assert_eq!(events(&own), ["NodeNotSchedulable: node a was cordoned by the controller"]);
}
