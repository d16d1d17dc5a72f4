//! Z-6, Z-7 and Z-10: when every zone is fully disrupted, evictions stop and their taints are removed again.

use muster_lifecycle::command::{LeaderOperation, OperatorOperation};
use muster_lifecycle::oversight::{self, EvictionStep};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

/// Two zones of two nodes each; in `a` one was lost and evicted.
fn evicting() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.populate("a", 1, 1);
    cluster.populate("b", 2, 0);
    cluster.assess();
    assert_eq!(cluster.evict("a-00"), "changed");
    cluster
}

/// The same, with every node silent, and the zones assessed.
fn fully_disrupted() -> Cluster {
    let mut cluster = evicting();
    for name in ["a-01", "b-00", "b-01"] {
        cluster.silence(name);
    }
    cluster.assess();
    cluster
}

fn lift(names: &[&str]) -> LeaderOperation {
    LeaderOperation::LiftEvictions { names: names.iter().map(|name| Text::from(*name)).collect() }
}

#[test]
fn z_6_full_disruption_stops_all_zones() {
    let mut cluster = evicting();
    for name in ["a-01", "b-00"] {
        cluster.silence(name);
    }
    cluster.assess();
    assert!(!cluster.state.policy_state().all_disrupted, "one node is ready");
    assert_eq!(
        (cluster.zone_told("a").as_str(), cluster.zone_told("b").as_str()),
        ("FullDisruption 0.1", "Normal 0.1")
    );
    cluster.silence("b-01");
    let applied = cluster.lead(LeaderOperation::AssessZones);
    let told = [
        "ZoneStateChanged: zone r1/b went from Normal to FullDisruption: 0 of 2 nodes are ready, 0 nodes per second are evicted",
        "AllZonesDisrupted: every zone is fully disrupted: evictions stop and their NoExecute taints are removed",
    ];
    assert_eq!(events(&applied), told);
    assert!(cluster.state.policy_state().all_disrupted);
    assert_eq!(
        (cluster.zone_told("a").as_str(), cluster.zone_told("b").as_str()),
        ("FullDisruption 0", "FullDisruption 0")
    );
    assert_eq!(cluster.assess(), "unchanged", "it is entered once");
    cluster.wait(1000);
    for zone in ["a", "b"] {
        assert_eq!(oversight::eviction_step(&cluster.state, &key(zone), cluster.now().cluster), EvictionStep::Idle);
    }
    assert_eq!(cluster.refuses_leader(cluster.eviction("b-00")), Rejection::NoToken { zone: "r1/b".parse().unwrap() });
}

#[test]
fn z_6_no_execute_taints_are_removed_and_no_schedule_taints_stay() {
    let mut cluster = fully_disrupted();
    assert_eq!(cluster.absent(), ["a-00"]);
    let operation = oversight::lift(&cluster.state).expect("there is one to take back");
    assert_eq!(operation, lift(&["a-00"]));
    assert_eq!(cluster.led(operation.clone()), "changed");
    assert_eq!(cluster.taints("a-00"), ["node.kubernetes.io/unreachable:NoSchedule"]);
    assert_eq!(oversight::lift(&cluster.state), None);
    assert_eq!(cluster.queue("a"), ["a-00", "a-01"], "it waits again, until full disruption ends");
    assert_eq!(cluster.led(operation), "unchanged", "a retry finds nothing to do");
}

#[test]
fn lifting_evictions_removes_only_lifecycle_taints_once_per_node() {
    let mut cluster = fully_disrupted();
    cluster.done(taint("a-00", "mine:NoExecute", "", false));
    let revision = cluster.state.revision().0;
    let applied = cluster.lead(lift(&["a-00", "none", "a-00", "b-00"]));
    assert_eq!((told(&applied.outcomes[0]).as_str(), cluster.state.revision().0), ("changed", revision + 1));
    assert_eq!(cluster.no_execute("a-00"), ["mine:NoExecute"], "NE-8");
    assert_eq!(cluster.led(lift(&[])), "unchanged");
}

#[test]
fn lifting_evictions_is_bounded_and_needs_full_disruption() {
    let mut cluster = fully_disrupted();
    let many: Vec<String> = (0..257).map(|index| format!("n{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(cluster.refuses_leader(lift(&many)).to_string(), "limit reached: nodes in one entry (at most 256)");
    assert_eq!(cluster.led(lift(&many[1..])), "unchanged");
    let mut normal = evicting();
    assert_eq!(oversight::lift(&normal.state), None);
    assert_eq!(normal.refuses_leader(lift(&["a-00"])), Rejection::NotAllDisrupted);
    assert_eq!(normal.no_execute("a-00"), [UNREACHABLE]);
}

#[test]
fn z_6_after_full_disruption_every_node_has_a_whole_grace() {
    let mut cluster = fully_disrupted();
    let lifted = oversight::lift(&cluster.state).expect("there is one to take back");
    cluster.lead(lifted);
    cluster.wait(600);
    cluster.report("b-00", "Ready=True");
    let applied = cluster.lead(LeaderOperation::AssessZones);
    let recovered = cluster.now().cluster;
    let told = [
        "ZoneStateChanged: zone r1/b went from FullDisruption to Normal: 1 of 2 nodes are ready, 0.1 nodes per second are evicted",
        "ZonesRecovered: a zone has a ready node again: every node gets a new grace period of 40s",
    ];
    assert_eq!(events(&applied), told);
    let until = ClusterTime(recovered.0 + 40_000);
    assert_eq!(
        (cluster.state.policy_state().all_disrupted, cluster.state.policy_state().spared_until()),
        (false, Some(until))
    );
    assert_eq!(
        (cluster.zone_told("a").as_str(), cluster.zone_told("b").as_str()),
        ("FullDisruption 0.1", "Normal 0.1")
    );

    let spared = EvictionStep::WaitUntil(until);
    cluster.wait(30);
    assert_eq!(oversight::eviction_step(&cluster.state, &key("a"), cluster.now().cluster), spared);
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::Spared);
    assert_eq!(cluster.refuses_leader(cluster.silent("b-00", None)), Rejection::Spared);
    cluster.wait(6);
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::Spared, "until its last moment");
    assert_eq!(cluster.evict("a-00"), "changed");
    assert_eq!(cluster.led(cluster.silent("b-00", None)), "changed");
}

#[test]
fn z_6_a_failover_during_or_after_full_disruption_changes_nothing() {
    let mut cluster = fully_disrupted();
    cluster.fail_over();
    assert!(cluster.state.policy_state().all_disrupted && oversight::lift(&cluster.state).is_some());
    cluster.report("b-00", "Ready=True");
    cluster.assess();
    cluster.fail_over();
    cluster.wait(5);
    assert_eq!(cluster.refuses_leader(cluster.eviction("b-01")), Rejection::Spared);
}

#[test]
fn z_7_a_new_cluster_is_fully_disrupted_until_a_node_is_ready() {
    let mut cluster = Cluster::with_node("a");
    cluster.assess();
    assert!(cluster.state.policy_state().all_disrupted);
    cluster.report("a", "Ready=True");
    cluster.assess();
    assert!(!cluster.state.policy_state().all_disrupted);
}

#[test]
fn z_7_one_ready_node_keeps_a_single_zone_normal() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 1, 59);
    cluster.assess();
    assert_eq!(
        (cluster.state.policy_state().all_disrupted, cluster.zone_told("a").as_str()),
        (false, "PartialDisruption 0.01")
    );
}

#[test]
fn z_10_better_than_upstream_a_new_zone_with_a_ready_node_ends_full_disruption() {
    let mut cluster = fully_disrupted();
    cluster.populate("new", 1, 0);
    cluster.assess();
    assert!(!cluster.state.policy_state().all_disrupted);
    assert_eq!(
        ["a", "b", "new"].map(|zone| cluster.zone_told(zone)),
        ["FullDisruption 0.1", "FullDisruption 0.1", "Normal 0.1"]
    );
}

#[test]
fn z_10_a_new_disrupted_zone_has_no_rate_in_full_disruption() {
    let mut cluster = fully_disrupted();
    cluster.populate("new", 0, 2);
    cluster.assess();
    assert_eq!(cluster.zone_told("new"), "FullDisruption 0");
    assert!(!cluster.zone("new").bucket.has_token(cluster.now().cluster));
}

#[test]
fn a_changed_rate_does_not_end_full_disruption() {
    let mut cluster = fully_disrupted();
    cluster.done(OperatorOperation::SetPolicy { changes: vec![(Text::from("node-eviction-rate"), Text::from("5"))] });
    assert_eq!(cluster.assess(), "unchanged");
    assert_eq!(cluster.zone_told("a"), "FullDisruption 0");
}

#[test]
fn z_6_no_pod_of_a_lost_node_is_evicted_during_full_disruption() {
    let mut cluster = evicting();
    let patience = "node.kubernetes.io/unreachable:NoExecute@0 node.kubernetes.io/not-ready:NoExecute@0";
    cluster.run_pod(tolerating(patience, pod_on("web", "a-00")));
    cluster.run_pod(tolerating(patience, pod_on("db", "a-00")));
    let evict =
        |cluster: &Cluster, name: &str| LeaderOperation::EvictPod { key: pod_key(name), uid: cluster.pod_uid(name) };
    let eviction = evict(&cluster, "web");
    assert_eq!(told(&cluster.lead(eviction).outcomes[0]), "changed", "zone b is there");
    for name in ["a-01", "b-00", "b-01"] {
        cluster.silence(name);
    }
    cluster.assess();
    let eviction = evict(&cluster, "db");
    assert_eq!(cluster.refuses_leader(eviction), Rejection::Spared);
}
