//! Deletion and finalizers. A node created anew inherits nothing.

use muster_lifecycle::command::{OperatorOperation, Precondition, ReceiptEffect};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{NodeDraft, Slot};
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;

fn guarded(finalizers: &[&str]) -> NodeDraft {
    NodeDraft { finalizers: Some(finalizers.iter().map(|name| Text::from(*name)).collect()), ..draft("a") }
}

#[test]
fn a_deleted_node_is_removed_with_an_event() {
    let mut cluster = Cluster::with_node("a");
    let before = cluster.node("a").clone();
    let applied = cluster.run(delete("a"));
    assert_eq!(events(&applied), ["RemovingNode: node a was removed by alice"]);
    assert!(cluster.state.node("a").is_none());
    assert_eq!(applied.changes[0].object().map(|object| object.meta().clone()), Some(before.meta));
    assert!(applied.changes[0].after.is_none());
    assert_eq!(cluster.rejected(delete("a")).to_string(), "node \"a\" not found");
}

#[test]
fn slots_are_reused_smallest_first_under_a_higher_generation() {
    let mut cluster = Cluster::default();
    for name in ["a", "b", "c", "d"] {
        cluster.create(draft(name));
    }
    cluster.done(delete("c"));
    cluster.done(delete("a"));
    let mut slot = |name: &str| {
        cluster.create(draft(name));
        cluster.node(name).slot
    };
    assert_eq!(slot("e"), Slot { index: 0, generation: 2 });
    assert_eq!(slot("f"), Slot { index: 2, generation: 2 });
    assert_eq!(slot("g"), Slot { index: 4, generation: 1 });
    cluster.done(delete("e"));
    cluster.create(draft("h"));
    assert_eq!(cluster.node("h").slot, Slot { index: 0, generation: 3 });
    assert_eq!(cluster.state.slot_limit(), 5);
}

#[test]
fn a_node_created_anew_is_another_incarnation() {
    let mut cluster = Cluster::with_node("a");
    let first = cluster.node("a").clone();
    cluster.done(delete("a"));
    cluster.create(draft("a"));
    let second = cluster.node("a").clone();
    assert!(second.incarnation > first.incarnation && second.slot.generation > first.slot.generation);
    let stale = Precondition { uid: Some(first.meta.uid), revision: Some(first.meta.revision) };
    let rejection = cluster.rejected(OperatorOperation::DeleteNode { name: Text::from("a"), precondition: stale });
    assert_eq!(
        rejection.to_string(),
        format!(
            "conflict on node \"a\": the node with uid {} is gone, another one has its name (uid {})",
            Uid(1),
            Uid(2)
        )
    );
}

#[test]
fn finalizers_hold_a_deleted_node_until_the_last_is_removed() {
    let mut cluster = Cluster::default();
    cluster.create(guarded(&["example.com/x", "example.com/y"]));
    let applied = cluster.run(delete("a"));
    assert_eq!(told(&applied.outcomes[0]), "changed");
    assert!(events(&applied).is_empty(), "it is not gone yet");
    assert_eq!(cluster.node("a").meta.deleted, Some(stamp(2)));
    assert_eq!(cluster.told(delete("a")), "unchanged", "the first delete counts");
    let refused = "metadata.finalizers: \"example.com/z\" cannot be added: the node is being deleted";
    assert_eq!(cluster.rejected(replace(guarded(&["example.com/z"]))).to_string(), refused);
    assert_eq!(cluster.told(replace(guarded(&["example.com/x"]))), "changed");
    assert_eq!(cluster.told(label("a", "k=v", false)), "changed");
    assert_eq!(cluster.apply(guarded(&[])).effect, ReceiptEffect::Deleted);
    assert!(cluster.state.node("a").is_none());
    assert_eq!(cluster.state.events().iter().next_back().unwrap().reason(), "RemovingNode");
}

#[test]
fn finalizers_of_a_node_that_is_not_deleted_can_be_added_and_removed() {
    let mut cluster = Cluster::with_node("a");
    assert_eq!(cluster.told(replace(guarded(&["f"]))), "changed");
    assert_eq!(cluster.told(replace(guarded(&[]))), "changed");
    assert!(cluster.state.node("a").is_some());
}
