//! TE-1 to TE-13: the pods that have to leave a tainted node, when, and what becomes of them then.

use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::pod::{DISRUPTION_TARGET, Phase};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::todo;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

/// Node `a` with pod `web`, which tolerates `t` for a minute.
fn patient() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster.run_pod(tolerating("t:NoExecute@60", pod_on("web", "a")));
    cluster
}

/// The same with the taint `t`, and when it was added.
fn leaving() -> (Cluster, u64) {
    let mut cluster = patient();
    cluster.done(taint("a", "t:NoExecute", "", false));
    let since = cluster.seconds_now();
    (cluster, since)
}

fn evict(cluster: &Cluster, name: &str) -> LeaderOperation {
    LeaderOperation::EvictPod { key: pod_key(name), uid: cluster.pod_uid(name) }
}

#[test]
fn te_1_only_no_execute_taints_evict_pods() {
    let cases =
        [("t:NoSchedule", false), ("t:PreferNoSchedule", false), ("t:NoExecute", true), ("u=1:NoExecute", true)];
    for (added, leaves) in cases {
        let mut cluster = patient();
        cluster.done(taint("a", added, "", false));
        assert_eq!(cluster.leaves_at("web").is_some(), leaves, "{added}");
    }
    let (mut cluster, since) = leaving();
    cluster.done(label("a", "k=v", false));
    cluster.done(cordon("a", true));
    cluster.report("a", "Ready=True DiskPressure=True");
    assert_eq!(cluster.leaves_at("web"), Some(since + 60), "nothing else about the node counts");
}

/// There are no workers that share out the nodes: one order holds for the whole fleet.
#[test]
fn te_2_pods_are_evicted_in_order_of_their_deadlines_across_nodes() {
    let mut cluster = Cluster::default();
    for (node, pod, patience) in
        [("a", "late", "t:NoExecute@90"), ("b", "early", "t:NoExecute@30"), ("c", "middle", "t:NoExecute@60")]
    {
        cluster.create(host(node));
        cluster.run_pod(tolerating(patience, pod_on(pod, node)));
    }
    ["a", "b", "c"].into_iter().for_each(|node| drop(cluster.run(taint(node, "t:NoExecute", "", false))));
    let order: Vec<String> = cluster.state.leaving_pods().map(|(_, key)| key.name.to_string()).collect();
    assert_eq!(order, ["early", "middle", "late"]);
    cluster.wait(62);
    assert_eq!(cluster.evict_pods(), ["early", "middle"]);
    let next = todo::pod_evictions(&cluster.state, cluster.now().cluster, 10, |_| false);
    assert_eq!(next.look_again_at.map(|at| at.0 / 1000), cluster.leaves_at("late"));
}

#[test]
fn te_3_without_the_taint_or_the_node_no_pod_has_to_leave() {
    let (mut cluster, _) = leaving();
    cluster.done(taint("a", "", "t:NoExecute", false));
    assert_eq!(cluster.leaves_at("web"), None);
    let (mut cluster, _) = leaving();
    cluster.done(delete("a"));
    assert_eq!(
        (cluster.leaves_at("web"), cluster.the_pod("web").is_terminating()),
        (None, true),
        "it goes with its node"
    );
    cluster.create(host("a"));
    cluster.done(taint("a", "t:NoExecute", "", false));
    assert_eq!(cluster.leaves_at("web"), None, "taints of a new incarnation do not concern it");
}

#[test]
fn te_4_the_countdown_of_a_pod_bound_later_begins_with_its_binding() {
    let (mut cluster, since) = leaving();
    cluster.run_pod(pod("waiting"));
    assert_eq!(cluster.leaves_at("waiting"), None, "a pod without a node has no deadline");
    cluster.wait(100);
    cluster.run_pod(tolerating("t:NoExecute@60", pod_on("late", "a")));
    let came = cluster.seconds_now();
    assert_eq!((cluster.leaves_at("web"), cluster.leaves_at("late")), (Some(since + 60), Some(came + 60)));
    cluster.done(delete_pod("late", Some(0)));
    assert_eq!(cluster.leaves_at("late"), None);
}

#[test]
fn te_5_the_shortest_toleration_of_all_taints_counts() {
    let cases: [(&str, &str, Option<u64>); 6] = [
        ("t:NoExecute@60", "t:NoExecute", Some(60)),
        ("t:NoExecute@60 u:NoExecute@30", "t:NoExecute u:NoExecute", Some(30)),
        ("t:NoExecute@60", "t:NoExecute u:NoExecute", Some(0)),
        ("t:NoExecute@-5", "t:NoExecute", Some(0)),
        ("t:NoExecute", "t:NoExecute", None),
        ("t:NoExecute u:NoExecute@9", "t:NoExecute u:NoExecute", Some(9)),
    ];
    for (tolerations, taints, patience) in cases {
        let mut cluster = Cluster::default();
        cluster.create(host("a"));
        cluster.run_pod(tolerating(tolerations, pod_on("web", "a")));
        cluster.done(taint("a", taints, "", false));
        let expected = patience.map(|patience| cluster.seconds_now() + patience);
        assert_eq!(cluster.leaves_at("web"), expected, "{tolerations} under {taints}");
    }
}

#[test]
fn te_5_better_than_upstream_the_most_patient_of_matching_tolerations_counts() {
    for tolerations in ["t:NoExecute@60 *:NoExecute", "*:NoExecute t:NoExecute@60"] {
        let mut cluster = Cluster::default();
        cluster.create(host("a"));
        cluster.run_pod(tolerating(tolerations, pod_on("web", "a")));
        cluster.done(taint("a", "t:NoExecute", "", false));
        assert_eq!(cluster.leaves_at("web"), None, "{tolerations}");
    }
}

/// Upstream keeps a timer that is running, whatever is changed.
#[test]
fn te_6_better_than_upstream_the_deadline_moves_with_tolerations_and_taints() {
    type Meanwhile = fn(&mut Cluster);
    fn retolerate(cluster: &mut Cluster, text: &str) {
        assert_eq!(cluster.told(apply_pod(tolerating(text, pod_on("web", "a")))), "changed");
    }
    let cases: [(&str, Meanwhile, Option<u64>); 6] = [
        ("longer", |cluster| retolerate(cluster, "t:NoExecute@600"), Some(600)),
        ("shorter", |cluster| retolerate(cluster, "t:NoExecute@5"), Some(5)),
        ("for ever", |cluster| retolerate(cluster, "t:NoExecute"), None),
        ("another taint", |cluster| drop(cluster.run(taint("a", "u:NoExecute", "", false))), Some(1)),
        (
            "another value is another taint time",
            |cluster| drop(cluster.run(taint("a", "t=v:NoExecute", "", true))),
            Some(61),
        ),
        ("added again as it was", |cluster| drop(cluster.run(taint("a", "t:NoExecute", "", true))), Some(60)),
    ];
    for (case, meanwhile, expected) in cases {
        let (mut cluster, since) = leaving();
        meanwhile(&mut cluster);
        assert_eq!(cluster.leaves_at("web"), expected.map(|after| since + after), "{case}");
    }
}

#[test]
fn te_6_a_change_between_not_ready_and_unreachable_keeps_the_countdown() {
    let (mut cluster, evicted) = lost();
    let leaves = cluster.leaves_at("web");
    assert_eq!(leaves, Some(evicted + 300));
    cluster.wait(100);
    cluster.report("a-00", "Ready=False");
    assert_eq!((cluster.no_execute("a-00"), cluster.leaves_at("web")), (vec![NOT_READY.to_owned()], leaves));
    cluster.silence("a-00");
    assert_eq!((cluster.no_execute("a-00"), cluster.leaves_at("web")), (vec![UNREACHABLE.to_owned()], leaves));
    cluster.report("a-00", "Ready=True");
    assert_eq!(cluster.leaves_at("web"), None, "it is back");
}

/// k#108268: upstream's countdown begins when its process heard of the taint, and again with every restart.
#[test]
fn te_7_better_than_upstream_a_failover_does_not_restart_the_countdown() {
    let (mut cluster, since) = leaving();
    cluster.wait(50);
    cluster.fail_over();
    assert_eq!(cluster.leaves_at("web"), Some(since + 60));
    assert!(cluster.evict_pods().is_empty());
    cluster.wait(9);
    assert!(cluster.evict_pods().is_empty(), "a second to go");
    cluster.wait(1);
    assert_eq!(cluster.evict_pods(), ["web"]);
}

#[test]
fn te_8_an_evicted_pod_has_the_reason_and_its_own_grace() {
    let (mut cluster, _) = leaving();
    cluster.wait(60);
    let applied = cluster.lead(evict(&cluster, "web"));
    assert_eq!(events(&applied), ["TaintManagerEviction: Marking for deletion Pod default/web: t:NoExecute"]);
    let pod = cluster.the_pod("web").clone();
    let target = pod.status.condition(DISRUPTION_TARGET).unwrap();
    assert_eq!((target.status.as_str(), target.reason.as_str()), ("True", "DeletionByTaintManager"));
    assert_eq!((pod.ending.map(|ending| ending.grace), pod.meta.deleted), (Some(30), Some(cluster.now())));
    assert!(cluster.evict_pods().is_empty(), "it is evicted once");
}

/// Upstream deletes by name, without checking taint or pod again.
#[test]
fn te_8_better_than_upstream_taint_and_pod_are_checked_again_when_it_is_applied() {
    type Meanwhile = fn(&mut Cluster);
    let not_leaving = "pod \"default/web\" need not leave its node now";
    let cases: [(&str, Meanwhile, &str); 6] = [
        ("taint gone", |cluster| drop(cluster.run(taint("a", "", "t:NoExecute", false))), not_leaving),
        (
            "more patient",
            |cluster| drop(cluster.run(apply_pod(tolerating("t:NoExecute@600", pod("web"))))),
            not_leaving,
        ),
        ("leaving already", |cluster| drop(cluster.run(delete_pod("web", None))), not_leaving),
        ("ended", |cluster| cluster.ends("web", Phase::Succeeded), not_leaving),
        ("node gone", |cluster| drop((cluster.run(delete("a")), cluster.create(host("a")))), not_leaving),
        ("pod gone", |cluster| drop(cluster.run(delete_pod("web", Some(0)))), "pod \"default/web\" not found"),
    ];
    for (case, meanwhile, message) in cases {
        let (mut cluster, _) = leaving();
        cluster.wait(60);
        let eviction = evict(&cluster, "web");
        meanwhile(&mut cluster);
        let told = cluster.refuses_leader(eviction).to_string();
        assert!(told.starts_with(message), "{case}: {told}");
    }
    let (mut cluster, _) = leaving();
    cluster.wait(50);
    let refused = cluster.refuses_leader(evict(&cluster, "web"));
    assert_eq!(refused, Rejection::NotLeaving { name: Text::from("default/web") }, "not yet");
}

#[test]
fn te_9_better_than_upstream_another_pod_of_the_same_name_is_not_evicted() {
    let (mut cluster, _) = leaving();
    cluster.wait(60);
    let eviction = evict(&cluster, "web");
    cluster.done(delete_pod("web", Some(0)));
    cluster.run_pod(tolerating("t:NoExecute@60", pod_on("web", "a")));
    let refused = cluster.refuses_leader(eviction);
    assert!(matches!(refused, Rejection::OtherUid { .. }), "{refused}");
    assert_eq!(cluster.leaves_at("web"), Some(cluster.seconds_now() - 1 + 60), "it has a countdown of its own");
}

#[test]
fn te_10_only_tolerations_protect_a_pod_and_ended_pods_are_not_evicted() {
    let mut cluster = patient();
    cluster.run_workload(workload(WorkloadKind::DaemonSet, "agent", 0));
    assert_eq!(cluster.staff(), ["agent"]);
    let daemon = cluster.active_pods().into_iter().find(|name| name.starts_with("agent-")).unwrap();
    cluster.ends("web", Phase::Failed);
    cluster.done(taint("a", "u:NoExecute", "", false));
    assert_eq!(cluster.leaves_at("web"), None);
    assert_eq!(cluster.evict_pods(), [daemon], "a DaemonSet's pod leaves like any other");
}

#[test]
fn te_12_the_pods_of_daemon_sets_stay_on_lost_nodes() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 3, 0);
    cluster.populate("normal", 1, 0);
    cluster.run_workload(workload(WorkloadKind::DaemonSet, "agent", 0));
    cluster.staff();
    cluster.silence("a-00");
    assert_eq!(cluster.pursue("a").as_deref(), Some("a-00"));
    cluster.wait(100_000);
    assert!(cluster.evict_pods().is_empty());
    assert_eq!(cluster.active_pods().len(), 4);
}

/// Node `a-00` with pod `web` is lost and tainted for eviction. Also returns when that was.
fn lost() -> (Cluster, u64) {
    let mut cluster = Cluster::default();
    cluster.populate("a", 3, 0);
    cluster.populate("normal", 1, 0);
    cluster.run_pod(pod_on("web", "a-00"));
    cluster.starts("web");
    cluster.silence("a-00");
    assert_eq!(cluster.pursue("a").as_deref(), Some("a-00"));
    let evicted = cluster.seconds_now();
    (cluster, evicted)
}

#[test]
fn te_13_a_pod_of_a_silent_node_is_evicted_and_its_name_freed() {
    let (mut cluster, evicted) = lost();
    assert_eq!(cluster.leaves_at("web"), Some(evicted + 300));
    cluster.wait(299);
    assert!(cluster.evict_pods().is_empty());
    cluster.wait(1);
    assert_eq!(cluster.evict_pods(), ["web"]);
    cluster.wait(10_000);
    cluster.tend();
    assert!(cluster.the_pod("web").is_terminating(), "no agent confirms: it may still run");
    cluster.done(delete("a-00"));
    assert!(!cluster.has_pod("web"), "an operator says that the machine is gone");
}

#[test]
fn z_6_pods_stay_if_the_taint_is_removed_by_full_disruption() {
    let (mut cluster, _) = lost();
    for node in ["a-01", "a-02", "normal-00"] {
        cluster.silence(node);
    }
    cluster.assess();
    assert_eq!(cluster.led(LeaderOperation::LiftEvictions { names: vec![Text::from("a-00")] }), "changed");
    assert_eq!(cluster.leaves_at("web"), None);
}

#[test]
fn no_pod_is_evicted_from_a_spared_node() {
    let (mut cluster, _) = leaving();
    cluster.create(host("b"));
    cluster.run_pod(pod_on("other", "b"));
    cluster.done(taint("b", "t:NoExecute", "", false));
    cluster.wait(100);
    let now = cluster.now().cluster;
    let todo = todo::pod_evictions(&cluster.state, now, 10, |node| node.meta.name == "a");
    let other = LeaderOperation::EvictPod { key: pod_key("other"), uid: cluster.pod_uid("other") };
    assert_eq!((todo.operations, todo.look_again_at.map(|at| at.0 - now.0)), (vec![other], Some(1000)));
    assert_eq!(
        cluster
            .refuses_leader(LeaderOperation::EvictPod { key: pod_key("web"), uid: Uid(99) })
            .to_string()
            .split(':')
            .next(),
        Some("conflict on pod \"default/web\"")
    );
}

/// A spared node may report at any moment: the clerk must look again soon, even if the next pod's time comes later.
#[test]
fn i_03_a_spared_pod_is_checked_again_soon() {
    let mut cluster = patient();
    cluster.run_pod(tolerating("t:NoExecute@600", pod_on("patient", "a")));
    cluster.done(taint("a", "t:NoExecute", "", false));
    cluster.wait(60);
    let now = cluster.now().cluster;
    let spared = todo::pod_evictions(&cluster.state, now, 10, |_| true);
    assert!(spared.operations.is_empty());
    assert!(spared.look_again_at.is_some_and(|at| at.0 <= now.0 + 1000), "{spared:?}");
}
