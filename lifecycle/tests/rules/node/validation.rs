//! NV-1 to NV-9: the rules for Nodes.

use muster_lifecycle::meta::Revision;
use muster_lifecycle::node::{ConditionStatus, NodeDraft, NodeInfo, NodeStatus};
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;

/// The message or the effect of creating the draft.
fn created(draft: NodeDraft) -> String {
    assert_eq!(draft.check().is_ok(), created_by_apply(draft.clone()) == "created", "check and create agree");
    created_by_apply(draft)
}

fn created_by_apply(draft: NodeDraft) -> String {
    Cluster::default().told(create(draft))
}

fn with_status(status: NodeStatus) -> NodeDraft {
    NodeDraft { status: Some(status), ..draft("a") }
}

fn expect_prefix(message: &str, prefix: &str) {
    assert!(message.starts_with(prefix), "{message}\ndoes not start with\n{prefix}");
}

#[test]
fn nv_1_names_and_metadata_are_checked() {
    let metadata = |change: fn(&mut NodeDraft)| {
        let mut draft = draft("a");
        change(&mut draft);
        draft
    };
    let cases = [
        (draft("10.240.79.157"), "created"),
        (draft("Node_1"), "metadata.name: \"Node_1\" is not a DNS-1123 subdomain: lower case letters"),
        (draft(""), "metadata.name: \"\" is not a DNS-1123 subdomain"),
        (metadata(|draft| draft.labels = Some(pairs("a/b/c=1"))), "metadata.labels: \"a/b/c\" is not a qualified name"),
        (
            metadata(|draft| draft.labels = Some(pairs("k=-"))),
            "metadata.labels: \"-\" is not a label value: empty, or letters",
        ),
        (
            metadata(|draft| draft.annotations = Some(pairs("_=1"))),
            "metadata.annotations: \"_\" is not a qualified name",
        ),
        (metadata(|draft| draft.annotations = Some(pairs("A.B/c=any/thing"))), "created"),
        (
            metadata(|draft| draft.finalizers = Some(Box::new([Text::from("ok"), Text::from("not ok")]))),
            "metadata.finalizers[1]: \"not ok\" is not a qualified name",
        ),
    ];
    for (draft, expected) in cases {
        expect_prefix(&created(draft), expected);
    }
}

#[test]
fn nv_2_taints_are_checked() {
    let cases = [
        ("a=b:NoSchedule a:NoExecute", "created"),
        ("a:NoSchedule a_:NoSchedule", "spec.taints[1].key: \"a_\" is not a qualified name"),
        ("a=b/c:NoSchedule", "spec.taints[0].value: \"b/c\" is not a label value"),
        ("a=1:NoSchedule b:NoSchedule a=2:NoSchedule", "spec.taints[2]: \"a:NoSchedule\" is there twice"),
    ];
    for (text, expected) in cases {
        let taints = text.split_whitespace().map(raw_taint).collect();
        expect_prefix(&created(NodeDraft { taints: Some(taints), ..draft("a") }), expected);
    }
}

#[test]
fn nv_3_quantities_are_checked() {
    let cases = [
        ("cpu=1500m memory=1.5Gi ephemeral-storage=10G pods=110 hugepages-2Mi=0", "created"),
        ("cpu=-1", "status.capacity[cpu]: \"-1\" is negative"),
        ("memory=-1n", "status.capacity[memory]: \"-1n\" is negative"),
        ("pods=1.5", "status.capacity[pods]: \"1500m\" is not a whole number"),
        ("hugepages-1Gi=100m", "status.capacity[hugepages-1Gi]: \"100m\" is not a whole number"),
        ("example.com/gpu=1.5", "status.capacity[example.com/gpu]: \"1500m\" is not a whole number"),
        ("a/b/c=1", "status.capacity[a/b/c]: \"a/b/c\" is not a qualified name"),
    ];
    for (text, expected) in cases {
        let status = NodeStatus { capacity: resources(text), ..NodeStatus::default() };
        expect_prefix(&created(with_status(status)), expected);
    }
    let status = NodeStatus { allocatable: resources("pods=-5"), ..NodeStatus::default() };
    expect_prefix(&created(with_status(status)), "status.allocatable[pods]: \"-5\" is negative");
}

#[test]
fn nv_4_pod_cidrs_are_checked() {
    let cases = [
        ("", "created"),
        ("10.0.0.0/24", "created"),
        ("10.0.0.0/24 fd00::/64", "created"),
        ("fd00::/64 10.0.0.0/24", "created"),
        ("10.0.0.0/24 10.0.1.0/24", "spec.podCIDRs[1]: \"10.0.1.0/24\" has the address family of the first"),
        ("10.0.0.0/24 fd00::/64 10.0.1.0/24", "spec.podCIDRs: 3 are too many"),
    ];
    for (text, expected) in cases {
        let cidrs = text.split_whitespace().map(|cidr| cidr.parse().unwrap()).collect();
        expect_prefix(&created(NodeDraft { pod_cidrs: Some(cidrs), ..draft("a") }), expected);
    }
}

#[test]
fn nv_5_swap_is_positive_and_status_may_come_with_creation() {
    for (swap_capacity, expected) in [
        (None, "created"),
        (Some(1), "created"),
        (Some(0), "status.nodeInfo.swap.capacity: 0 is not positive"),
        (Some(-1), "status.nodeInfo.swap.capacity: -1 is not positive"),
    ] {
        let info = Some(Box::new(NodeInfo { swap_capacity, ..NodeInfo::default() }));
        expect_prefix(&created(with_status(NodeStatus { info, ..NodeStatus::default() })), expected);
    }
    let mut cluster = Cluster::default();
    cluster.create(with_status(ready(ConditionStatus::True)));
    assert_eq!(cluster.state.node_counts().ready, 1);
    let twice = ready(ConditionStatus::True).conditions[0].clone();
    let status = NodeStatus { conditions: Box::new([twice.clone(), twice]), ..NodeStatus::default() };
    expect_prefix(&created(with_status(status)), "status.conditions[1].type: \"Ready\" is there twice");
}

#[test]
fn nv_6_every_new_node_has_the_not_ready_taint() {
    let cases = [
        ("", "node.kubernetes.io/not-ready:NoSchedule"),
        ("a:NoSchedule", "a:NoSchedule node.kubernetes.io/not-ready:NoSchedule"),
        ("node.kubernetes.io/not-ready=x:NoSchedule", "node.kubernetes.io/not-ready=x:NoSchedule"),
        (
            "node.kubernetes.io/not-ready:NoExecute",
            "node.kubernetes.io/not-ready:NoExecute node.kubernetes.io/not-ready:NoSchedule",
        ),
    ];
    for (given, expected) in cases {
        let named = NodeDraft { taints: Some(taints(given)), ..draft("a") };
        let (mut by_create, mut by_apply) = (Cluster::default(), Cluster::default());
        by_create.create(named.clone());
        by_apply.apply(named);
        for cluster in [by_create, by_apply] {
            assert_eq!(cluster.taints("a").join(" "), expected);
        }
    }
    let mut cluster = Cluster::with_node("a");
    cluster.done(replace_status("a", ready(ConditionStatus::True)));
    assert!(cluster.taints("a").is_empty(), "until the first Ready");
}

#[test]
fn nv_7_pod_cidrs_and_provider_id_are_set_once() {
    let cidrs = |text: &str| NodeDraft { pod_cidrs: Some(Box::new([text.parse().unwrap()])), ..draft("a") };
    let provider = |id: &str| NodeDraft { provider_id: Some(Text::from(id)), ..draft("a") };
    let mut cluster = Cluster::with_node("a");
    assert_eq!(cluster.told(replace(cidrs("10.0.0.0/24"))), "changed");
    let fixed = "spec.podCIDRs: is 10.0.0.0/24 and cannot be changed or cleared once set";
    assert_eq!(cluster.rejected(replace(cidrs("10.0.1.0/24"))).to_string(), fixed);
    assert_eq!(cluster.rejected(replace(draft("a"))).to_string(), fixed, "a replace would clear them");
    cluster.apply(draft("a"));

    let mut cluster = Cluster::with_node("a");
    assert_eq!(cluster.told(replace(provider(""))), "unchanged", "an empty providerID is not set");
    assert_eq!(cluster.node("a").spec.provider_id, None);
    assert_eq!(cluster.told(replace(provider("cloud://1"))), "changed");
    let fixed = "spec.providerID: is \"cloud://1\" and cannot be changed or cleared once set";
    for other in [provider("cloud://2"), provider(""), draft("a")] {
        assert_eq!(cluster.rejected(replace(other)).to_string(), fixed);
    }
    assert_eq!(cluster.told(replace(provider("cloud://1"))), "unchanged");
}

#[test]
fn nv_8_addresses_are_unique_on_update() {
    let twice = || NodeStatus {
        addresses: Box::new([
            address("InternalIP", "10.0.0.1"),
            address("Hostname", "a"),
            address("InternalIP", "10.0.0.1"),
        ]),
        ..NodeStatus::default()
    };
    assert_eq!(created_by_apply(with_status(twice())), "created", "upstream checks updates only");
    let mut cluster = Cluster::with_node("a");
    let message = "status.addresses[2]: InternalIP \"10.0.0.1\" is there twice";
    assert_eq!(cluster.rejected(replace_status("a", twice())).to_string(), message);
    let other_kind = NodeStatus {
        addresses: Box::new([address("InternalIP", "10.0.0.1"), address("ExternalIP", "10.0.0.1")]),
        ..NodeStatus::default()
    };
    assert_eq!(cluster.told(replace_status("a", other_kind)), "changed");
    let twice = [raw_taint("a=1:NoSchedule"), raw_taint("a=2:NoSchedule")];
    let retainted = NodeDraft { taints: Some(Box::new(twice)), ..draft("a") };
    expect_prefix(&cluster.rejected(replace(retainted)).to_string(), "spec.taints[1]: \"a:NoSchedule\" is there twice");
}

#[test]
fn nv_9_spec_and_status_are_written_separately() {
    let mut cluster = Cluster::default();
    cluster.create(with_status(ready(ConditionStatus::True)));
    let cordoned = NodeDraft { unschedulable: Some(true), ..with_status(ready(ConditionStatus::False)) };
    for operation in [replace(cordoned.clone()), replace(cordoned.clone())] {
        cluster.run(operation);
        assert!(cluster.node("a").is_ready() && cluster.node("a").spec.unschedulable);
    }
    cluster.apply(cordoned);
    assert!(cluster.node("a").is_ready(), "an apply does not touch status either");
    let generation = cluster.node("a").meta.generation;
    assert_eq!(cluster.told(replace_status("a", ready(ConditionStatus::Unknown))), "changed");
    assert!(!cluster.node("a").is_ready() && cluster.node("a").spec.unschedulable);
    assert_eq!(cluster.node("a").meta.generation, generation + 1, "for the taint that follows (TC-1)");
    assert_eq!(cluster.told(replace_status("a", NodeStatus::default())), "changed");
    assert_eq!(cluster.told(replace_status("a", ready(ConditionStatus::False))), "changed");
    assert_eq!(cluster.node("a").meta.generation, generation + 2, "status itself does not raise the generation");
    assert_eq!(cluster.rejected(replace(draft("b"))).to_string(), "node \"b\" not found", "no create on update");
    assert!(cluster.state.revision() > Revision(0));
}
