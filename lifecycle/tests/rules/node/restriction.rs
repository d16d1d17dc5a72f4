//! NR-1 to NR-5: what a node may change. Each violation is refused with its key and its rule, and changes nothing.

use muster_lifecycle::command::{AgentOperation, Command, Origin};
use muster_lifecycle::meta::{OwnerReference, Uid};
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::pod::{Phase, PodReport};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

fn labelled(labels: &str) -> NodeDraft {
    NodeDraft { labels: Some(pairs(labels)), ..draft("a") }
}

fn owner() -> OwnerReference {
    OwnerReference {
        api_version: Text::from("v1"),
        kind: Text::from("K"),
        name: Text::from("o"),
        uid: Uid(1),
        controller: false,
        block_owner_deletion: false,
    }
}

#[test]
fn nr_2_to_nr_4_an_agent_may_not_set_restricted_fields() {
    let config_source = r#"{"spec":{"configSource":{"configMap":{"name":"c"}}}}"#;
    let cases = [
        (NodeDraft { owners: Some(Box::new([owner()])), ..draft("a") }, "metadata.ownerReferences", "NR-3"),
        (NodeDraft { finalizers: Some(Box::new([Text::from("f")])), ..draft("a") }, "metadata.finalizers", "NR-3"),
        (
            NodeDraft { pod_cidrs: Some(Box::new(["10.0.0.0/24".parse().unwrap()])), ..draft("a") },
            "spec.podCIDRs",
            "NR-3",
        ),
        (NodeDraft { unmodelled: Some(Text::from(config_source)), ..draft("a") }, "spec.configSource", "NR-2"),
    ];
    let restricted = [
        "node-restriction.kubernetes.io/pci",
        "a.node-restriction.kubernetes.io/x",
        "node-role.kubernetes.io/master",
        "kubernetes.io/role",
        "k8s.io/x",
        "sub.k8s.io/x",
        "node.kubernetes.io/exclude-disruption",
    ];
    let fields: Vec<_> = restricted.iter().map(|key| format!("metadata.labels[{key}]")).collect();
    let labels = restricted.iter().map(|key| labelled(&format!("{key}=y"))).zip(fields.iter().map(String::as_str));
    for (immodest, field, rule) in cases.into_iter().chain(labels.map(|(draft, field)| (draft, field, "NR-4"))) {
        let message = format!("{field}: is not for a node's agent to set ({rule})");
        let mut cluster = Cluster::default();
        let refused = cluster.refused(by_agent(register(immodest.clone())));
        assert!(matches!(refused, Rejection::Forbidden(_)), "{refused:?}");
        assert_eq!(refused.to_string(), message);
        cluster.create(draft("a"));
        assert_eq!(cluster.refused(by_agent(register(immodest))).to_string(), message, "an existing node neither");
    }
}

#[test]
fn nr_4_an_agent_may_set_other_labels() {
    let open = [
        "example.org/x=y",
        "x=y",
        "mykubernetes.io/x=y",
        "node.kubernetes.io/speed=y",
        "fast.node.kubernetes.io/disk=y",
        "kubelet.kubernetes.io/x=y",
        "kubernetes.io/hostname=a",
        "kubernetes.io/os=linux",
        "kubernetes.io/arch=amd64",
        "beta.kubernetes.io/os=linux",
        "beta.kubernetes.io/arch=amd64",
        "topology.kubernetes.io/zone=z",
        "topology.kubernetes.io/region=r",
        "failure-domain.beta.kubernetes.io/zone=z",
        "failure-domain.beta.kubernetes.io/region=r",
        "node.kubernetes.io/instance-type=big",
        "beta.kubernetes.io/instance-type=big",
    ];
    for label in open {
        assert_eq!(Cluster::default().agent_told(register(labelled(label))), "created", "{label}");
    }
    let empty = NodeDraft { owners: Some(Box::new([])), finalizers: Some(Box::new([])), ..draft("a") };
    assert_eq!(Cluster::default().agent_told(register(empty)), "created", "an empty list claims nothing");
    let quoting = NodeDraft { unmodelled: Some(Text::from(r#"{"x":"\"configSource\":"}"#)), ..draft("a") };
    assert_eq!(Cluster::default().agent_told(register(quoting)), "created", "a word within a value is not a key");
}

#[test]
fn nr_3_a_value_set_by_an_operator_is_not_a_change_by_the_agent() {
    let mut cluster = Cluster::default();
    cluster.create(labelled("node-role.kubernetes.io/db=yes"));
    assert_eq!(cluster.agent_told(register(labelled("node-role.kubernetes.io/db=yes"))), "unchanged");
    let message = cluster.refused(by_agent(register(labelled("node-role.kubernetes.io/db=no")))).to_string();
    assert_eq!(message, "metadata.labels[node-role.kubernetes.io/db]: is not for a node's agent to set (NR-4)");
}

#[test]
fn nr_2_and_nr_3_an_agent_sets_taints_at_the_first_registration_only() {
    let tainted = |text: &str| NodeDraft { taints: Some(taints(text)), ..draft("a") };
    let mut cluster = Cluster::default();
    cluster.agent(register(tainted("dedicated=db:NoSchedule")));
    let before = cluster.taints("a");
    assert_eq!(before[0], "dedicated=db:NoSchedule");
    for again in ["", "dedicated=web:NoSchedule", "more:NoExecute"] {
        assert_eq!(cluster.agent_told(register(tainted(again))), "unchanged", "{again:?}");
        assert_eq!(cluster.taints("a"), before);
    }
}

#[test]
fn nr_1_a_node_registers_and_reports_itself_only() {
    let mut cluster = Cluster::with_node("a");
    let report = cluster.report_of("a", status("Ready=True"));
    let pods = reports_of(&cluster, "a", Vec::new());
    for operation in [register(draft("a")), report, pods] {
        let command =
            Command { origin: Origin::Node { name: Text::from("b") }, request: None, operation: operation.into() };
        let refused = cluster.refused(command).to_string();
        assert_eq!(refused, r#"metadata.name: "a" is not "b": a node speaks for itself alone (NR-1)"#);
    }
}

#[test]
fn nr_5_a_node_reports_its_own_pods_only() {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster.create(host("b"));
    cluster.run_pod(pod_on("own", "a"));
    cluster.run_pod(pod_on("foreign", "b"));
    cluster.run_pod(pod("waiting"));
    let own = cluster.pod_report("own", Phase::Running, true);
    for name in ["foreign", "waiting"] {
        let reports = vec![own.clone(), cluster.pod_report(name, Phase::Running, true)];
        let operation = reports_of(&cluster, "a", reports);
        let refused = cluster.refused(by_agent(operation));
        let expected =
            format!("pods[default/{name}]: is not bound to node \"a\": a node reports on its own pods alone (NR-5)");
        assert_eq!(refused.to_string(), expected, "and nothing of its own pod is taken either");
        assert!(matches!(refused, Rejection::Forbidden(_)));
    }
    let former = PodReport { uid: Uid(99), ..cluster.pod_report("foreign", Phase::Running, true) };
    let gone = PodReport { key: pod_key("gone"), ..former.clone() };
    let operation = reports_of(&cluster, "a", vec![former, gone]);
    assert_eq!(cluster.agent_told(operation), "unchanged", "a report on a removed pod is late, not forbidden");
    let operation = reports_of(&cluster, "a", vec![own]);
    assert_eq!(cluster.agent_told(operation), "changed");
}

fn reports_of(cluster: &Cluster, node: &str, reports: Vec<PodReport>) -> AgentOperation {
    AgentOperation::ReportPods { node: Text::from(node), incarnation: cluster.node(node).incarnation, reports }
}
