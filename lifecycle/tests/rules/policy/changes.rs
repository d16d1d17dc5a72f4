//! Policy of the cluster: how it is created once, and changed later.

use muster_lifecycle::command::{LeaderOperation, OperatorOperation};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;

use crate::fixture::cluster::*;

fn found(grace_seconds: u64) -> LeaderOperation {
    let node_monitor_grace_period = Period::from_secs(grace_seconds);
    LeaderOperation::FoundPolicy { policy: Box::new(Policy { node_monitor_grace_period, ..Policy::default() }) }
}

/// `node-monitor-period=1s node-eviction-rate=1`.
fn set(text: &str) -> OperatorOperation {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').expect("name=value"));
    OperatorOperation::SetPolicy { changes: pairs.map(|(name, value)| (Text::from(name), Text::from(value))).collect() }
}

fn grace(cluster: &Cluster) -> String {
    cluster.state.policy().node_monitor_grace_period.to_string()
}

#[test]
fn the_first_leaders_flags_create_the_policy_and_later_ones_do_not() {
    let mut cluster = Cluster::default();
    assert_eq!((grace(&cluster).as_str(), cluster.state.record(&RecordKey::FleetPolicyState)), ("40s", None));
    assert_eq!(cluster.led(found(50)), "created");
    assert_eq!(cluster.led(found(60)), "unchanged");
    assert_eq!(grace(&cluster), "50s");
    cluster.fail_over();
    assert_eq!(cluster.led(found(70)), "unchanged");
    assert_eq!(grace(&cluster), "50s");
    assert_eq!(cluster.state.revision().0, 0, "a policy is no object");
}

#[test]
fn contradicting_flags_are_refused() {
    let message = cluster_refusal(found(1));
    assert!(message.starts_with("node-monitor-period: 5s is above node-monitor-grace-period (1s)"), "{message}");
}

fn cluster_refusal(operation: LeaderOperation) -> String {
    Cluster::default().refuses_leader(operation).to_string()
}

#[test]
fn a_setting_by_an_operator_creates_the_policy_too() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.told(set("node-monitor-grace-period=40s")), "changed", "the default, but decided");
    assert_eq!(cluster.led(found(60)), "unchanged");
    let mut cluster = Cluster::default();
    assert_eq!(cluster.told(set("")), "unchanged", "nothing was decided");
    assert_eq!(cluster.led(found(60)), "created");
}

/// I-02: agents beat at the pace of the longer grace until they are told of the shorter one.
#[test]
fn a_shorter_grace_spares_every_node_until_the_agents_know() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 2, 0);
    cluster.told(set("node-eviction-rate=1"));
    assert_eq!(cluster.state.policy_state().spared_until(), None, "no grace changed");
    cluster.told(set("node-monitor-grace-period=8s"));
    let decided = cluster.now().cluster;
    let until = ClusterTime(decided.0 + 10_000 + 5_000);
    assert_eq!(cluster.state.policy_state().spared_until(), Some(until), "the old beat interval, and the time to tell");
    assert_eq!(cluster.refuses_leader(cluster.silent("a-00", None)), Rejection::Spared);
    cluster.told(set("node-monitor-grace-period=1h"));
    assert_eq!(cluster.state.policy_state().spared_until(), Some(until), "a longer grace prolongs nothing");
    cluster.wait(15);
    assert_eq!(cluster.led(cluster.silent("a-00", None)), "changed");
}

#[test]
fn a_fleet_without_nodes_is_not_spared() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.led(found(8)), "created");
    assert_eq!(cluster.state.policy_state().spared_until(), None);
}

#[test]
fn every_changed_setting_has_one_event() {
    let mut cluster = Cluster::default();
    let applied = cluster.run(set("node-eviction-rate=1 node-monitor-grace-period=50s node-monitor-period=5s"));
    let told = [
        "PolicyChanged: node-monitor-grace-period was changed from 40s to 50s by alice",
        "PolicyChanged: node-eviction-rate was changed from 0.1 to 1 by alice",
    ];
    assert_eq!(events(&applied), told);
    let again = cluster.run(set("node-eviction-rate=1"));
    assert_eq!((events(&again).len(), again.touched), (0, vec![RecordKey::Counters]));
}

#[test]
fn settings_that_depend_on_each_other_change_together() {
    let mut cluster = Cluster::default();
    let alone = cluster.rejected(set("node-monitor-period=50s")).to_string();
    assert!(alone.starts_with("node-monitor-period: 50s is above node-monitor-grace-period (40s)"), "{alone}");
    assert_eq!(cluster.told(set("node-monitor-period=50s node-monitor-grace-period=1m")), "changed");
}

#[test]
fn an_invalid_setting_is_refused_by_name_and_changes_nothing() {
    let cases = [
        ("node-monitor-grace-period=soon", "node-monitor-grace-period: \"soon\" is not a duration"),
        ("unhealthy-zone-threshold=1.5", "unhealthy-zone-threshold: \"1.5\" is not a fraction"),
        ("node-eviction-rate=-1", "node-eviction-rate: \"-1\" is not a rate"),
        ("large-cluster-size-scope=rack", "large-cluster-size-scope: \"rack\" is not one of zone, cluster"),
        ("colour=red", "colour: no such setting: use one of node-monitor-period"),
        ("node-eviction-rate=1 node-eviction-rate=2", "node-eviction-rate: is named twice in one command"),
    ];
    for (text, message) in cases {
        let refused = Cluster::default().rejected(set(text)).to_string();
        assert!(refused.starts_with(message), "{refused}");
    }
    let many = vec!["node-eviction-rate=1"; 65].join(" ");
    assert_eq!(Cluster::default().rejected(set(&many)).to_string(), "limit reached: settings (at most 64)");
}

#[test]
fn z_3_a_new_threshold_takes_effect_at_the_next_assessment() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 5, 5);
    cluster.assess();
    assert_eq!(cluster.zone_told("a"), "Normal 0.1");
    cluster.done(set("unhealthy-zone-threshold=0.5"));
    assert_eq!(cluster.zone_told("a"), "Normal 0.1");
    assert_eq!(cluster.assess(), "changed");
    assert_eq!(cluster.zone_told("a"), "PartialDisruption 0");
    cluster.done(set("large-cluster-size-threshold=9"));
    cluster.assess();
    assert_eq!(cluster.zone_told("a"), "PartialDisruption 0.01");
}
