//! Commands that succeed: what each does, and which events it writes.

use muster_lifecycle::change::Object;
use muster_lifecycle::command::{Batch, OperatorOperation, Position, ReceiptEffect, ReplicaOperation};
use muster_lifecycle::level::LevelRange;
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::node::{ConditionStatus, NodeDraft, Slot};
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord};
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;

#[test]
fn create_gives_the_node_its_identity_and_writes_an_event() {
    let mut cluster = Cluster::default();
    let applied = cluster.run(create(draft("a")));
    assert_eq!(events(&applied), ["RegisteredNode: node a was registered by alice"]);
    let node = cluster.node("a");
    assert_eq!((node.slot, node.incarnation.0), (Slot { index: 0, generation: 1 }, 1));
    assert_eq!((node.meta.revision, node.meta.generation), (Revision(1), 1));
    assert_eq!((node.meta.created, node.meta.uid), (stamp(1), Uid(1)));
    let event = cluster.state.events().first().unwrap();
    assert_eq!((event.meta.name.as_str(), event.meta.namespace.as_deref()), ("a.1", Some("default")));
    assert_eq!((event.headline().source, event.subject.uid), ("node-controller", Uid(1)));
}

#[test]
fn revisions_take_one_step_per_object_change() {
    let mut cluster = Cluster::default();
    let operations = [create(draft("a")), create(draft("b")), label("a", "k=v", false), cordon("b", true), delete("a")];
    let mut expected = 0;
    for operation in operations {
        for change in cluster.run(operation).changes {
            expected += 1;
            assert_eq!(change.revision, Revision(expected));
            if let Some(Object::Node(after)) = change.after {
                assert_eq!(after.meta.revision, change.revision);
            }
        }
        assert_eq!(cluster.state.revision(), Revision(expected));
    }
    assert_eq!(expected, 2 + 2 + 1 + 2 + 2);
}

#[test]
fn a_command_that_changes_nothing_takes_no_revision() {
    let mut cluster = Cluster::with_node("a");
    cluster.done(label("a", "k=v", false));
    cluster.done(cordon("a", true));
    cluster.done(taint("a", "t=1:NoExecute", "", false));
    let as_is = NodeDraft { unschedulable: Some(true), labels: Some(pairs("k=v")), ..draft("a") };
    let again = OperatorOperation::ApplyNode { draft: Box::new(as_is), uid: Uid(9), precondition: ANY };
    let operations = [
        label("a", "k=v", false),
        label("a", "absent-", false),
        cordon("a", true),
        taint("a", "t=1:NoExecute", "", false),
        taint("a", "t=1:NoExecute", "", true),
        again,
    ];
    let (revision, digest) = (cluster.state.revision(), cluster.state.objects_digest());
    for operation in operations {
        let applied = cluster.run(operation.clone());
        assert_eq!(told(&applied.outcomes[0]), "unchanged", "{operation:?}");
        assert!(applied.changes.is_empty());
    }
    assert_eq!((cluster.state.revision(), cluster.state.objects_digest()), (revision, digest));
}

#[test]
fn only_spec_changes_raise_the_generation() {
    let mut cluster = Cluster::with_node("a");
    let annotate = OperatorOperation::AnnotateNode {
        name: Text::from("a"),
        changes: vec![(Text::from("note"), Some(Text::from("free text")))],
        overwrite: false,
        precondition: ANY,
    };
    let steps = [
        (label("a", "k=v", false), 1),
        (annotate, 1),
        (replace_status("a", ready(ConditionStatus::False)), 1),
        (replace_status("a", ready(ConditionStatus::True)), 2),
        (cordon("a", true), 3),
        (taint("a", "t:NoSchedule", "", false), 4),
    ];
    // A status that turns ready removes the not-ready taint too, and taints are spec.
    for (operation, generation) in steps {
        assert_eq!(cluster.done(operation).effect, ReceiptEffect::Changed);
        assert_eq!(cluster.node("a").meta.generation, generation);
    }
}

#[test]
fn apply_creates_then_changes_only_what_it_names() {
    let mut cluster = Cluster::default();
    let first = NodeDraft { labels: Some(pairs("a=1 b=1")), unschedulable: Some(true), ..draft("n") };
    assert_eq!(cluster.apply(first).effect, ReceiptEffect::Created);
    let second = NodeDraft { labels: Some(pairs("b=2 c=2")), ..draft("n") };
    assert_eq!(cluster.apply(second).effect, ReceiptEffect::Changed);
    let node = cluster.node("n");
    assert_eq!(node.meta.labels, pairs("a=1 b=2 c=2"));
    assert!(node.spec.unschedulable && !node.spec.taints.is_empty());
    assert_eq!(node.meta.uid, Uid(1), "the uid proposed later is not used");
}

#[test]
fn replace_resets_what_it_does_not_name() {
    let mut cluster = Cluster::default();
    cluster.create(NodeDraft { labels: Some(pairs("a=1")), unschedulable: Some(true), ..draft("n") });
    let before = cluster.node("n").clone();
    cluster.done(replace(NodeDraft { annotations: Some(pairs("x=y")), ..draft("n") }));
    let node = cluster.node("n");
    assert!(node.meta.labels.is_empty() && !node.spec.unschedulable);
    assert_eq!(
        cluster.taints("n"),
        ["node.kubernetes.io/not-ready:NoSchedule"],
        "TC-2: a manifest does not change managed taints"
    );
    assert_eq!(node.meta.annotations, pairs("x=y"));
    assert_eq!((node.slot, node.incarnation, node.meta.uid), (before.slot, before.incarnation, before.meta.uid));
    assert_eq!(node.meta.created, before.meta.created);
}

#[test]
fn cordon_and_uncordon_write_an_event_with_the_user_by_every_command() {
    let mut cluster = Cluster::with_node("a");
    assert_eq!(events(&cluster.run(cordon("a", true))), ["NodeNotSchedulable: node a was cordoned by alice"]);
    assert!(events(&cluster.run(cordon("a", true))).is_empty());
    assert_eq!(events(&cluster.run(replace(draft("a")))), ["NodeSchedulable: node a was uncordoned by alice"]);
}

#[test]
fn without_overwrite_only_new_labels_are_set() {
    let mut cluster = Cluster::with_node("a");
    cluster.done(label("a", "k=1 l=1", false));
    let refused = "metadata.labels: \"k\" already has the value \"1\"; --overwrite changes it";
    assert_eq!(cluster.rejected(label("a", "m=1 k=2", false)).to_string(), refused);
    assert_eq!(cluster.told(label("a", "k=2 l- m=3", true)), "changed");
    assert_eq!(cluster.node("a").meta.labels, pairs("k=2 m=3"));
    assert_eq!(
        cluster.rejected(label("a", "k=3 k-", true)).to_string(),
        "metadata.labels: \"k\" is named twice in one command"
    );
}

#[test]
fn t_1_taints_are_added_updated_in_place_and_removed() {
    let mut cluster = Cluster::with_node("a");
    let base = "node.kubernetes.io/not-ready:NoSchedule";
    cluster.done(taint("a", "t=1:NoSchedule t=1:NoExecute", "", false));
    assert_eq!(cluster.taints("a"), [base, "t=1:NoSchedule", "t=1:NoExecute"]);
    let refused = "spec.taints: \"t=1:NoSchedule\" is already there; --overwrite changes its value";
    assert_eq!(cluster.rejected(taint("a", "t=2:NoSchedule", "", false)).to_string(), refused);
    cluster.done(taint("a", "t=2:NoSchedule u:NoSchedule", "", true));
    assert_eq!(cluster.taints("a"), [base, "t=2:NoSchedule", "t=1:NoExecute", "u:NoSchedule"]);
}

#[test]
fn t_6_removing_by_key_alone_removes_every_effect() {
    let mut cluster = Cluster::with_node("a");
    cluster.done(taint("a", "t:NoSchedule t:NoExecute u:NoSchedule u:NoExecute", "", false));
    cluster.done(taint("a", "v:NoSchedule", "t- u:NoExecute-", false));
    assert_eq!(cluster.taints("a")[1..], ["u:NoSchedule", "v:NoSchedule"]);
    for (absent, message) in
        [("t-", "spec.taints: taint \"t\" not found"), ("u:NoExecute-", "spec.taints: taint \"u:NoExecute\" not found")]
    {
        assert_eq!(cluster.rejected(taint("a", "", absent, false)).to_string(), message);
    }
}

#[test]
fn a_no_execute_taint_has_the_time_when_it_was_added() {
    let mut cluster = Cluster::with_node("a");
    cluster.done(taint("a", "t=1:NoExecute t=1:NoSchedule", "", false));
    let added = |cluster: &Cluster| cluster.node("a").spec.taints.iter().map(|taint| taint.added).collect::<Vec<_>>();
    assert_eq!(added(&cluster), [None, Some(stamp(2)), None]);
    cluster.done(replace(NodeDraft { taints: Some(taints("t=1:NoExecute")), ..draft("a") }));
    assert_eq!(added(&cluster), [None, Some(stamp(2))], "unchanged, so it keeps its time");
    cluster.done(taint("a", "t=2:NoExecute", "", true));
    assert_eq!(added(&cluster), [None, Some(stamp(4))], "another value has another time");
}

#[test]
fn cluster_time_never_goes_back() {
    let mut cluster = Cluster::with_node("a");
    cluster.run(cordon("a", true));
    let high = cluster.state.cluster_time();
    let late = Batch { stamp: stamp(0), commands: Vec::new() };
    cluster.state.apply(Position::default(), &late);
    assert_eq!(cluster.state.cluster_time(), high);
    assert_eq!(cluster.state.stamp().wall, stamp(0).wall, "wall time is what the last proposer read");
    assert_eq!(late.to_string(), "0 commands");
}

#[test]
fn replicas_are_bound_to_their_store() {
    let mut cluster = Cluster::default();
    let announce = |store: u128, version: &str| ReplicaOperation::AnnounceReplica {
        replica: ReplicaRecord::new(ReplicaId(2), Uid(store), Text::from(version), LevelRange::SHIPPED),
    };
    assert_eq!(cluster.told(announce(7, "0.1.0")), "created");
    assert_eq!(cluster.told(announce(7, "0.1.0")), "unchanged");
    assert_eq!(cluster.told(announce(7, "0.2.0")), "changed");
    let wiped = cluster.rejected(announce(8, "0.2.0")).to_string();
    assert!(wiped.starts_with("replica 2 is known with another store"), "{wiped}");
    assert_eq!(cluster.told(ReplicaOperation::RetireReplica { id: ReplicaId(2) }), "changed");
    assert_eq!(cluster.told(ReplicaOperation::RetireReplica { id: ReplicaId(2) }), "unchanged");
    let retired = cluster.rejected(announce(7, "0.2.0")).to_string();
    assert!(retired.starts_with("replica 2 was removed from the cluster"), "{retired}");
    assert_eq!(
        cluster.told(ReplicaOperation::RetireReplica { id: ReplicaId(9) }),
        "created",
        "it must not return later"
    );
    assert_eq!(cluster.state.revision(), Revision(0), "replicas are no objects");
}

#[test]
fn a_restore_raises_the_revision_and_removes_replicas_and_clients() {
    let mut cluster = Cluster::with_node("a");
    cluster.run(ReplicaOperation::RetireReplica { id: ReplicaId(1) });
    let revision = cluster.state.revision();
    cluster.state.raise_revision(1_000_000, 1);
    assert_eq!(cluster.state.revision(), Revision(revision.0 + 1_000_000));
    assert_eq!(cluster.state.generation(), 1);
    assert!(cluster.state.replicas().is_empty() && cluster.state.clients().is_empty());
    assert_eq!(cluster.done(cordon("a", true)).revision, Revision(revision.0 + 1_000_001));
    cluster.state.raise_revision(u64::MAX, 2);
    cluster.done(cordon("a", false));
}

/// The backup is made, then `b` is created: its agent knows an incarnation that the restored state has not given yet.
#[test]
fn a_restore_gives_no_incarnation_that_the_old_cluster_gave() {
    let mut old = Cluster::with_node("a");
    let mut restored = Cluster::with_node("a");
    restored.state = old.state.clone();
    let incarnation = |cluster: &Cluster, name: &str| cluster.state.node(name).unwrap().incarnation;
    old.create(draft("b"));
    restored.state.raise_revision(1_000_000, 1);
    restored.create(draft("b"));
    assert!(incarnation(&restored, "b") > incarnation(&old, "b"));
    assert_eq!(incarnation(&restored, "a"), incarnation(&old, "a"), "a node of the backup is the same node");
}
