//! Workloads: how many pods they keep, which pods go and come, and what is refused.

use muster_lifecycle::command::{LeaderOperation, OperatorOperation, Precondition};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::{OwnerReference, Uid};
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::pod::{Phase, PodDraft, PodKey};
use muster_lifecycle::text::Text;
use muster_lifecycle::workload::WorkloadDraft;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;
use crate::fixture::tolerations::tolerations;

use WorkloadKind::{DaemonSet, ReplicaSet, StatefulSet};

/// Two nodes, and a workload with this many pods, all running.
fn running(kind: WorkloadKind, name: &str, replicas: i64) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster.create(host("b"));
    cluster.run_workload(workload(kind, name, replicas));
    cluster.tend();
    for pod in cluster.active_pods() {
        cluster.starts(&pod);
    }
    cluster
}

fn scaled(cluster: &mut Cluster, kind: WorkloadKind, name: &str, replicas: i64) {
    assert_eq!(cluster.told(apply_workload(workload(kind, name, replicas))), "changed");
}

// === made ===

#[test]
fn a_workload_creates_its_pods_once_and_owns_them() {
    let mut cluster = Cluster::default();
    cluster.run_workload(workload(ReplicaSet, "web", 3));
    assert_eq!(cluster.staff(), ["web"]);
    let pods = cluster.active_pods();
    assert_eq!(pods.len(), 3);
    let owner = cluster.the_workload(ReplicaSet, "web").clone();
    for name in &pods {
        let pod = cluster.the_pod(name);
        assert!(name.starts_with("web-") && name.len() == "web-xxxxx".len(), "{name}");
        assert_eq!(
            pod.controller().map(|owner| (owner.kind.as_str(), owner.uid)),
            Some(("ReplicaSet", owner.meta.uid))
        );
        assert_eq!((&pod.meta.labels, pod.spec.tolerations.len()), (&pairs("app=web"), 2));
    }
    assert!(cluster.staff().is_empty(), "that was all");
    let again =
        LeaderOperation::StaffWorkload { key: workload_key(ReplicaSet, "web"), uid: owner.meta.uid, nodes: Vec::new() };
    assert_eq!(cluster.led(again), "unchanged", "what is lacking is worked out anew in the entry");
    assert_eq!(cluster.active_pods(), pods);
}

#[test]
fn a_large_workload_is_filled_in_several_entries() {
    let mut cluster = Cluster::default();
    cluster.run_workload(workload(ReplicaSet, "web", 2_500));
    let counts: Vec<usize> = (0..3).map(|_| (cluster.staff().len(), cluster.active_pods().len()).1).collect();
    assert_eq!(counts, [1_024, 2_048, 2_500]);
    let mut uids: Vec<Uid> = cluster.state.pods().iter().map(|pod| pod.meta.uid).collect();
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), 2_500, "no two are the same");
}

#[test]
fn an_invalid_workload_is_refused_with_its_field() {
    type Wrong = (&'static str, fn(&mut WorkloadDraft), &'static str);
    let cases: [Wrong; 10] = [
        ("replicas", |draft| draft.replicas = Some(-1), "spec.replicas: -1 is not between 0 and 1000000"),
        ("too many", |draft| draft.replicas = Some(1_000_001), "spec.replicas: 1000001 is not between"),
        ("no selector", |draft| draft.selector = pairs(""), "spec.selector.matchLabels: is required"),
        (
            "not its own",
            |draft| draft.pod_labels = pairs("app=other"),
            "spec.template.metadata.labels: must have \"app=web\"",
        ),
        ("no containers", |draft| draft.template.has_containers = false, "spec.template.spec.containers: is required"),
        (
            "tolerations",
            |draft| draft.template.tolerations = Some(tolerations("*=v")),
            "spec.template.spec.tolerations[0].operator",
        ),
        ("grace", |draft| draft.template.grace = Some(-1), "spec.template.spec.terminationGracePeriodSeconds"),
        ("name", |draft| draft.key.name = Text::from("a.b"), "metadata.name: "),
        (
            "finalizers",
            |draft| draft.finalizers = Some(Box::new([Text::from("f")])),
            "metadata.finalizers: are not supported",
        ),
        (
            "too heavy",
            |draft| draft.template.unmodelled = Some(Text::from("x".repeat(60_000))),
            "limit reached: bytes of workload \"web\"",
        ),
    ];
    let mut cluster = Cluster::default();
    for (case, spoil, message) in cases {
        let mut draft = workload(ReplicaSet, "web", 1);
        spoil(&mut draft);
        let told = cluster.rejected(create_workload(draft.clone())).to_string();
        assert!(told.starts_with(message), "{case}: {told}");
        assert_eq!(cluster.rejected(apply_workload(draft)).to_string(), told, "{case}: create and apply agree");
    }
    cluster.run_workload(workload(ReplicaSet, "web", 0));
    let taken = cluster.rejected(create_workload(workload(ReplicaSet, "web", 0))).to_string();
    assert_eq!(taken, "replicaset \"default/web\" already exists");
    assert_eq!(cluster.told(create_workload(workload(StatefulSet, "web", 0))), "created", "kinds keep names apart");
    let mut moved = workload(ReplicaSet, "web", 0);
    (moved.selector, moved.pod_labels) = (pairs("app=other"), pairs("app=other"));
    assert!(cluster.rejected(apply_workload(moved)).to_string().starts_with("spec.selector: cannot be changed"));
}

/// A template that is accepted with no room to spare must still make pods.
#[test]
fn the_largest_accepted_template_can_be_made_into_pods() {
    let mut cluster = Cluster::default();
    let mut draft = workload(ReplicaSet, "web", 1);
    let many: String = (0..248).map(|index| format!("k{index}:NoSchedule ")).collect();
    draft.template.tolerations = Some(tolerations(&many));
    draft.template.unmodelled = Some(Text::from("x".repeat(50_000)));
    cluster.run_workload(draft);
    assert_eq!(cluster.staff(), ["web"]);
    assert_eq!(cluster.active_pods().len(), 1);
}

// === replaced ===

#[test]
fn a_pod_of_a_replica_set_is_replaced_at_once_under_another_name() {
    let mut cluster = running(ReplicaSet, "web", 2);
    let before = cluster.active_pods();
    let gone = before[0].clone();
    let uid = cluster.pod_uid(&gone);
    cluster.done(delete_pod(&gone, None));
    assert_eq!(cluster.staff(), ["web"], "it is still stopping");
    assert!(cluster.the_pod(&gone).is_terminating());
    let successor = cluster.active_pods().into_iter().find(|name| !before.contains(name)).unwrap();
    assert!(cluster.state.pods().iter().filter(|pod| pod.meta.uid == uid).count() == 1, "{successor} is another");
}

#[test]
fn a_pod_of_a_stateful_set_is_replaced_when_its_name_is_free() {
    let mut cluster = running(StatefulSet, "db", 2);
    assert_eq!(cluster.active_pods(), ["db-0", "db-1"]);
    let uid = cluster.pod_uid("db-0");
    cluster.done(delete_pod("db-0", None));
    assert!(cluster.staff().is_empty(), "the one before may still run");
    cluster.stops("db-0");
    assert_eq!(cluster.staff(), ["db"]);
    assert_ne!(cluster.pod_uid("db-0"), uid);
    assert_eq!(cluster.active_pods(), ["db-0", "db-1"]);
}

#[test]
fn pods_that_ended_are_replaced_by_every_kind() {
    for kind in WorkloadKind::ALL {
        let mut cluster = running(kind, "web", 2);
        let before = cluster.active_pods();
        let uid = cluster.pod_uid(&before[0]);
        cluster.ends(&before[0], Phase::Failed);
        cluster.tend();
        assert_eq!(cluster.active_pods().len(), 2, "{kind}");
        let is_left = cluster.state.pods().iter().any(|pod| pod.meta.uid == uid);
        assert_eq!(is_left, kind == ReplicaSet, "{kind}: only an ended pod of a ReplicaSet is kept");
    }
}

// === scaled ===

#[test]
fn scaling_down_removes_pods_that_are_not_ready_first() {
    let mut cluster = running(ReplicaSet, "web", 3);
    let served = cluster.active_pods();
    let mute = served[1].clone();
    let unready = cluster.pod_report(&mute, Phase::Running, false);
    let node = cluster.the_pod(&mute).node().cloned().unwrap();
    cluster.says(&node, vec![unready]);
    ["a", "b"].into_iter().for_each(|node| drop(cluster.run(cordon(node, true))));
    scaled(&mut cluster, ReplicaSet, "web", 4);
    cluster.staff();
    assert_eq!(cluster.active_pods().len(), 4, "one waits for a node");
    scaled(&mut cluster, ReplicaSet, "web", 2);
    cluster.staff();
    let left = cluster.active_pods();
    assert!(left.len() == 2 && left.iter().all(|name| served.contains(name) && *name != mute), "{left:?}");
    let last = cluster.state.events().iter().next_back().unwrap().clone();
    assert_eq!((last.reason(), last.headline().source), ("SuccessfulDelete", "replicaset-controller"));
}

#[test]
fn scaling_a_stateful_set_removes_the_highest_and_adds_the_lowest_ordinal() {
    let mut cluster = running(StatefulSet, "db", 3);
    scaled(&mut cluster, StatefulSet, "db", 1);
    cluster.tend();
    assert_eq!(cluster.active_pods(), ["db-0"]);
    cluster.stops("db-1");
    scaled(&mut cluster, StatefulSet, "db", 3);
    cluster.tend();
    assert_eq!(cluster.active_pods(), ["db-0", "db-1"], "db-2 is still stopping");
    cluster.stops("db-2");
    cluster.tend();
    assert_eq!(cluster.active_pods(), ["db-0", "db-1", "db-2"]);
}

/// The workload has as many pods as it wants, but with other names.
#[test]
fn a_stateful_set_with_the_right_number_of_pods_of_wrong_names_is_corrected() {
    for grace in [None, Some(0)] {
        let mut cluster = running(StatefulSet, "db", 2);
        cluster.done(delete_pod("db-0", grace));
        scaled(&mut cluster, StatefulSet, "db", 1);
        cluster.fail_over();
        cluster.tend();
        assert!(cluster.the_pod("db-1").is_terminating(), "{grace:?}: it is one too many");
        if grace.is_none() {
            cluster.stops("db-0");
        }
        cluster.stops("db-1");
        cluster.tend();
        assert_eq!(cluster.active_pods(), ["db-0"], "{grace:?}");
    }
}

#[test]
fn a_stateful_set_waits_for_a_name_that_another_pod_has() {
    let mut cluster = Cluster::default();
    cluster.run_pod(pod("db-0"));
    cluster.run_workload(workload(StatefulSet, "db", 1));
    assert!(cluster.staff().is_empty());
    cluster.done(delete_pod("db-0", None));
    assert_eq!(cluster.staff(), ["db"]);
}

#[test]
fn a_changed_template_applies_to_pods_created_afterwards() {
    let mut cluster = running(ReplicaSet, "web", 1);
    let mut changed = workload(ReplicaSet, "web", 2);
    changed.template.priority = Some(7);
    changed.replicas = None;
    assert_eq!(cluster.told(apply_workload(changed.clone())), "changed");
    assert_eq!(cluster.the_workload(ReplicaSet, "web").spec.replicas, 1, "not said: as it was");
    assert!(cluster.staff().is_empty(), "no pod is replaced for it");
    changed.replicas = Some(2);
    cluster.told(apply_workload(changed));
    cluster.staff();
    let mut priorities: Vec<i32> = cluster.state.pods().iter().map(|pod| pod.spec.priority).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, [0, 7]);
}

// === daemons ===

#[test]
fn a_daemon_set_has_one_pod_on_every_node_that_accepts_it() {
    let mut cluster = Cluster::default();
    for name in ["a", "b", "tainted", "new"] {
        cluster.create(host(name));
    }
    cluster.create(NodeDraft { status: Some(status("Ready=False")), ..draft("unready") });
    cluster.create(NodeDraft { labels: Some(pairs("os=win")), ..host("windows") });
    cluster.done(cordon("b", true));
    cluster.done(taint("tainted", "t:NoSchedule", "", false));
    cluster.done(delete("new"));
    let mut daemon = workload(DaemonSet, "agent", 0);
    daemon.template.node_selector = Some(pairs("topology.kubernetes.io/zone=z"));
    cluster.run_workload(daemon);
    assert_eq!(cluster.staff(), ["agent"]);
    let mut nodes: Vec<String> =
        cluster.state.pods().iter().filter_map(|pod| pod.node().map(ToString::to_string)).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["a", "b"], "a cordon does not keep it away, other taints and selectors do");
    assert!(cluster.staff().is_empty());
    cluster.done(taint("tainted", "", "t", false));
    cluster.create(host("new"));
    cluster.staff();
    assert_eq!(cluster.active_pods().len(), 4);
}

#[test]
fn a_pod_of_a_daemon_set_is_replaced_on_its_own_node() {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster.create(host("b"));
    cluster.run_workload(workload(DaemonSet, "agent", 0));
    cluster.tend();
    let on_a = cluster.state.tenants("a").and_then(|tenants| tenants.keys().next()).cloned().unwrap();
    cluster.done(delete_pod(&on_a.name, None));
    assert!(cluster.staff().is_empty(), "one that is stopping is still there");
    cluster.stops(&on_a.name);
    cluster.tend();
    let back = cluster.state.tenants("a").and_then(|tenants| tenants.keys().next()).cloned();
    assert!(back.is_some_and(|key| key != on_a));
    cluster.silence("a");
    cluster.done(delete("a"));
    cluster.tend();
    assert_eq!(cluster.active_pods().len(), 1, "without its node there is no place for it");
}

// === deleted ===

#[test]
fn a_deleted_workload_is_removed_once_its_pods_are_terminating() {
    for kind in WorkloadKind::ALL {
        let mut cluster = running(kind, "web", 2);
        assert_eq!(cluster.told(delete_workload(kind, "web")), "deleted");
        assert_eq!(cluster.told(delete_workload(kind, "web")), "unchanged");
        assert_eq!(cluster.active_pods().len(), 2, "{kind}: its pods are there until the leader deletes them");
        cluster.tend();
        assert!(cluster.state.workloads().is_empty() && cluster.active_pods().is_empty(), "{kind}");
        assert_eq!(cluster.state.pod_tally().terminating, 2, "{kind}: their nodes have not confirmed");
    }
}

/// Its remains would keep their names from the next workload for ever.
#[test]
fn a_deleted_workload_leaves_no_ended_pods() {
    for kind in WorkloadKind::ALL {
        let mut cluster = running(kind, "web", 2);
        let ended = cluster.active_pods()[0].clone();
        cluster.ends(&ended, Phase::Succeeded);
        cluster.done(delete_workload(kind, "web"));
        cluster.tend();
        assert!(!cluster.has_pod(&ended) && cluster.state.workloads().is_empty(), "{kind}");
    }
}

#[test]
fn a_command_for_a_deleted_workload_does_not_apply_to_its_successor() {
    let mut cluster = running(ReplicaSet, "web", 1);
    let old = cluster.the_workload(ReplicaSet, "web").meta.uid;
    cluster.done(delete_workload(ReplicaSet, "web"));
    cluster.tend();
    cluster.run_workload(workload(ReplicaSet, "web", 1));
    let stale = LeaderOperation::StaffWorkload { key: workload_key(ReplicaSet, "web"), uid: old, nodes: Vec::new() };
    assert!(cluster.refuses_leader(stale).to_string().starts_with("conflict on replicaset \"default/web\""));
    let flood = vec![Text::from("a"); 1_025];
    let flood = LeaderOperation::StaffWorkload { key: workload_key(ReplicaSet, "web"), uid: old, nodes: flood };
    assert_eq!(cluster.refuses_leader(flood).to_string(), "limit reached: nodes in one entry (at most 1024)");
    let precondition = Precondition { revision: None, uid: Some(old) };
    let delete = OperatorOperation::DeleteWorkload { key: workload_key(ReplicaSet, "web"), precondition };
    assert!(cluster.rejected(delete).to_string().starts_with("conflict on replicaset \"default/web\""));
    assert_eq!(cluster.rejected(delete_workload(DaemonSet, "web")).to_string(), "daemonset \"default/web\" not found");
}

/// An operator can say of any pod that a workload made it, wherever the pod is and whatever else it says.
#[test]
fn a_pod_cannot_claim_a_workload_of_another_name_or_namespace() {
    let mut cluster = Cluster::default();
    cluster.run_workload(workload(ReplicaSet, "web", 1));
    let owner = |name: &str| {
        let uid = cluster.the_workload(ReplicaSet, "web").meta.uid;
        let texts = ["apps/v1", "ReplicaSet", name].map(Text::from);
        let [api_version, kind, name] = texts;
        OwnerReference { api_version, kind, name, uid, controller: true, block_owner_deletion: true }
    };
    let claims = [
        PodDraft { owners: Some(Box::new([owner("web")])), key: PodKey::new("elsewhere", "x"), ..pod("x") },
        PodDraft { owners: Some(Box::new([owner("other")])), ..pod("y") },
    ];
    for claim in claims {
        let refused = cluster.rejected(create_pod(claim)).to_string();
        assert!(refused.starts_with("metadata.ownerReferences: default/web, a ReplicaSet has uid"), "{refused}");
    }
}
