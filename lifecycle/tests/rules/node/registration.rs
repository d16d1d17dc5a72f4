//! RG-4 and LB-1: an agent registers its node. Of a node that exists it changes only what describes the machine.

use muster_lifecycle::node::{ConditionStatus, NodeDraft, NodeStatus};
use muster_lifecycle::reconcile::reconciliation;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::rule::node::NODE_BYTES_MAX;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

fn machine(labels: &str, conditions: &str) -> NodeDraft {
    NodeDraft { labels: Some(pairs(labels)), status: Some(status(conditions)), ..draft("a") }
}

#[test]
fn rg_3_a_new_node_is_created_as_its_agent_describes_it() {
    let mut cluster = Cluster::default();
    let own = NodeDraft {
        taints: Some(taints("dedicated=db:NoSchedule")),
        provider_id: Some(Text::from("cloud://1")),
        ..machine("kubernetes.io/os=linux team=x", "Ready=False")
    };
    let applied = cluster.agent(register(own));
    assert_eq!(told(&applied.outcomes[0]), "created");
    assert_eq!(events(&applied), ["RegisteredNode: node a was registered by its agent"]);
    let node = cluster.node("a");
    assert_eq!(node.meta.labels, pairs("kubernetes.io/os=linux beta.kubernetes.io/os=linux team=x"), "LB-1");
    assert_eq!(cluster.taints("a"), ["dedicated=db:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"], "NV-6");
    assert_eq!(
        node.status.ready().and_then(|ready| ready.last_transition),
        Some(stamp(1)),
        "the clock of the node is not used"
    );
}

#[test]
fn rg_4_an_existing_node_keeps_what_operators_set() {
    let mut cluster = Cluster::default();
    cluster.agent(register(machine("kubernetes.io/arch=amd64 team=x", "Ready=True")));
    cluster.done(cordon("a", true));
    cluster.done(taint("a", "maintenance:NoExecute", "", false));
    cluster.done(label("a", "team=y", true));
    let before = cluster.node("a").clone();
    let again = NodeDraft {
        taints: Some(taints("dedicated=db:NoSchedule")),
        unschedulable: Some(false),
        annotations: Some(pairs("note=new")),
        provider_id: Some(Text::from("cloud://2")),
        ..machine("kubernetes.io/arch=arm64 topology.kubernetes.io/zone=z2 team=z new=label", "Ready=True")
    };
    assert_eq!(cluster.agent_told(register(again.clone())), "changed");
    let after = cluster.node("a");
    let labels = "beta.kubernetes.io/arch=arm64 kubernetes.io/arch=arm64 team=y topology.kubernetes.io/zone=z2";
    assert_eq!(after.meta.labels, pairs(labels));
    assert_eq!((&after.spec, &after.meta.annotations), (&before.spec, &before.meta.annotations));
    assert_eq!((after.incarnation, after.slot, after.meta.uid), (before.incarnation, before.slot, before.meta.uid));
    assert_eq!(cluster.agent_told(register(again)), "unchanged", "registering again writes no event");
}

#[test]
fn rg_4_a_registration_brings_the_status_of_a_restarted_machine() {
    let mut cluster = Cluster::default();
    cluster.agent(register(machine("", "Ready=True")));
    cluster.silence("a");
    let applied = cluster.agent(register(machine("", "Ready=True")));
    assert_eq!(events(&applied), ["NodeReady: Node a status is now: NodeReady"]);
    assert_eq!(cluster.agent_told(register(draft("a"))), "unchanged", "without a status nothing changes");
    assert_eq!(ready_of(&cluster, "a"), Some(ConditionStatus::True));
}

#[test]
fn rg_4_only_machine_labels_are_reconciled_and_only_if_they_changed() {
    let known = "kubernetes.io/os=linux topology.kubernetes.io/zone=z1 team=x";
    let kept = "beta.kubernetes.io/os=linux";
    let cases = [
        ("nothing is said", "", None),
        ("the same", known, None),
        ("no word of the zone", "kubernetes.io/os=linux", None),
        ("another label of the operator's", "team=y new=label", None),
        ("another zone", "topology.kubernetes.io/zone=z2 team=y", Some("topology.kubernetes.io/zone=z2")),
        ("a region", "topology.kubernetes.io/region=r", Some("topology.kubernetes.io/region=r")),
        ("an instance type", "node.kubernetes.io/instance-type=m", Some("node.kubernetes.io/instance-type=m")),
        ("a host name", "kubernetes.io/hostname=h kubernetes.io/os=linux", Some("kubernetes.io/hostname=h")),
    ];
    for (what, said, wanted) in cases {
        let mut cluster = Cluster::default();
        cluster.done(create(NodeDraft { labels: Some(pairs(known)), ..draft("a") }));
        let before = cluster.node("a").clone();
        let registered = reconciliation(&before, machine(said, "Ready=True"));
        assert_eq!(registered.is_some(), wanted.is_some(), "{what}");
        let Some(registered) = registered else { continue };
        assert_eq!(cluster.agent_told(register(registered.clone())), "changed", "{what}");
        let after = cluster.node("a");
        let mut labels = pairs(&format!("{known} {kept}"));
        pairs(wanted.unwrap()).iter().for_each(|(key, value)| drop(labels.insert(key.clone(), value.clone())));
        assert_eq!(after.meta.labels, labels, "{what}");
        assert_eq!(after.status, before.status, "{what}: the status is reported for itself");
        assert_eq!(reconciliation(after, registered), None, "{what}: once");
    }
}

#[test]
fn nr_1_a_registration_under_another_name_is_left_to_apply() {
    let cluster = Cluster::with_node("a");
    let other = NodeDraft { name: Text::from("b"), ..machine("", "Ready=True") };
    assert_eq!(reconciliation(&cluster.node("a").clone(), other).map(|draft| draft.name), Some(Text::from("b")));
}

#[test]
fn an_invalid_machine_label_of_a_known_node_is_refused() {
    let mut cluster = Cluster::with_node("a");
    let message = cluster.refused(by_agent(register(machine("kubernetes.io/os=not/valid", "")))).to_string();
    assert!(message.starts_with("metadata.labels: \"not/valid\" is not a label value"), "{message}");
}

/// A node whose agent fills its record to the limit must not escape its own eviction, nor hold up its zone's queue.
#[test]
fn the_largest_node_has_room_for_taints_and_conditions_added_later() {
    let heavy =
        |bytes: usize| NodeDraft { unmodelled: Some(Text::from("x".repeat(bytes))), ..machine("", "Ready=True") };
    let mut cluster = Cluster::default();
    cluster.populate("b", 3, 0);
    let fits = (NODE_BYTES_MAX - 1000..NODE_BYTES_MAX).rev().find(|bytes| {
        let told = told(&Cluster::default().agent(register(heavy(*bytes))).outcomes[0]);
        assert!(told == "created" || told.contains("most of them in fields kept as given (at most 63487)"), "{told}");
        told == "created"
    });
    cluster.agent(register(heavy(fits.expect("some size fits"))));
    cluster.silence("a");
    cluster.assess();
    assert_eq!(cluster.evict("a"), "changed");
    assert_eq!(cluster.no_execute("a"), [UNREACHABLE]);
    let refused = cluster.rejected(label("a", "k=v", false));
    assert!(matches!(refused, Rejection::LimitReached { .. }), "others may not use that room");
    assert_eq!(cluster.told(replace_status("a", NodeStatus::default())), "changed", "but may make it lighter");
}
