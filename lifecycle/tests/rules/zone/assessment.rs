//! Z-2 to Z-5, Z-8, Z-9 and Z-11: zones in the replicated state after `AssessZones`.

use muster_lifecycle::census::Census;
use muster_lifecycle::command::{LeaderOperation, OperatorOperation};
use muster_lifecycle::oversight;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption=";

/// Zone `a` as described, beside a healthy one, assessed.
fn assessed(ready: usize, lost: usize, settings: &str) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.populate("a", ready, lost);
    cluster.populate("normal", 1, 0);
    set(&mut cluster, settings);
    cluster.assess();
    cluster
}

fn set(cluster: &mut Cluster, settings: &str) {
    let changes = settings.split_whitespace().filter_map(|pair| pair.split_once('='));
    let changes = changes.map(|(name, value)| (Text::from(name), Text::from(value))).collect();
    cluster.done(OperatorOperation::SetPolicy { changes });
}

#[test]
fn z_2_a_zone_is_known_from_its_first_assessment_on() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.assess(), "unchanged", "there is nothing to assess");
    cluster.populate("a", 3, 0);
    assert!(oversight::assessment_is_due(&cluster.state, cluster.now().cluster));
    let applied = cluster.lead(LeaderOperation::AssessZones);
    let event = "ZoneStateChanged: zone r1/a went from Initial to Normal: 3 of 3 nodes are ready, 0.1 nodes per second are evicted";
    assert_eq!(events(&applied), [event]);
    assert_eq!((cluster.zone_told("a").as_str(), cluster.zone("a").zone.since), ("Normal 0.1", stamp(3)));
    assert!(!oversight::assessment_is_due(&cluster.state, cluster.now().cluster));
    let again = cluster.lead(LeaderOperation::AssessZones);
    assert_eq!((told(&again.outcomes[0]).as_str(), again.changes.len()), ("unchanged", 0));
}

#[test]
fn z_3_the_state_follows_the_number_of_not_ready_nodes() {
    let cases = [
        ("2 of 3", 1, 2, "Normal 0.1"),
        ("3 of 5", 2, 3, "PartialDisruption 0"),
        ("5 of 10", 5, 5, "Normal 0.1"),
        ("11 of 20", 9, 11, "PartialDisruption 0"),
        ("10 of 20", 10, 10, "Normal 0.1"),
        ("3 of 3", 0, 3, "FullDisruption 0.1"),
        ("0 of 3", 3, 0, "Normal 0.1"),
    ];
    for (row, ready, lost, expected) in cases {
        assert_eq!(assessed(ready, lost, "").zone_told("a"), expected, "{row} not ready");
    }
}

#[test]
fn z_3_a_node_without_a_status_counts_as_not_ready() {
    let mut cluster = assessed(2, 2, "");
    cluster.create(in_zone("mute", "a", ""));
    assert_eq!(cluster.state.census_of(&key("a")), Census { ready: 2, not_ready: 3, excluded: 0 });
    cluster.assess();
    assert_eq!(cluster.zone_told("a"), "PartialDisruption 0");
}

#[test]
fn z_4_excluded_nodes_are_not_counted() {
    let mut cluster = assessed(2, 3, "");
    assert_eq!(cluster.zone_told("a"), "PartialDisruption 0");
    cluster.done(label("a-00", EXCLUDED, false));
    assert_eq!(cluster.state.census_of(&key("a")), Census { ready: 2, not_ready: 2, excluded: 1 });
    cluster.assess();
    assert_eq!(cluster.zone_told("a"), "Normal 0.1");
    assert_eq!(cluster.queue("a"), ["a-00", "a-01", "a-02"], "but they are evicted like all others");
}

#[test]
fn z_5_a_partially_disrupted_zone_evicts_no_node_at_33_nodes_and_a_hundredth_at_60() {
    let cases = [
        (13, 20, "PartialDisruption 0"),
        (24, 36, "PartialDisruption 0.01"),
        (20, 30, "PartialDisruption 0"),
        (20, 31, "PartialDisruption 0.01"),
    ];
    for (ready, lost, expected) in cases {
        assert_eq!(assessed(ready, lost, "").zone_told("a"), expected, "{} nodes", ready + lost);
    }
}

#[test]
fn z_5_with_cluster_scope_the_size_of_the_whole_cluster_counts() {
    for (others, expected) in [(16, "PartialDisruption 0"), (17, "PartialDisruption 0.01")] {
        let mut cluster = assessed(13, 20, "large-cluster-size-scope=cluster");
        cluster.populate("b", others, 0);
        cluster.assess();
        assert_eq!(cluster.zone_told("a"), expected, "33, {others} and 1 nodes");
    }
}

#[test]
fn z_5_growth_takes_effect_without_a_change_of_state_or_an_event() {
    let mut cluster = assessed(13, 20, "");
    let since = cluster.zone("a").zone.since;
    for index in 0..27 {
        let said = if index < 16 { "Ready=Unknown" } else { "Ready=True" };
        cluster.create(in_zone(&format!("more-{index}"), "a", said));
    }
    let applied = cluster.lead(LeaderOperation::AssessZones);
    assert_eq!((told(&applied.outcomes[0]).as_str(), events(&applied).len()), ("changed", 0));
    assert_eq!((cluster.zone_told("a").as_str(), cluster.zone("a").zone.since), ("PartialDisruption 0.01", since));
}

#[test]
fn z_8_zones_without_nodes_are_removed_all_at_once() {
    let mut cluster = assessed(1, 0, "");
    cluster.populate("b", 0, 1);
    cluster.assess();
    for name in ["a-00", "b-00"] {
        cluster.done(delete(name));
    }
    assert_eq!(cluster.state.zones().len(), 3, "until the next assessment");
    cluster.assess();
    assert_eq!(cluster.state.zones().iter().map(|zone| zone.key.clone()).collect::<Vec<_>>(), [key("normal")]);
}

#[test]
fn z_9_a_zone_whose_nodes_are_all_excluded_keeps_its_record_and_bucket() {
    let mut cluster = assessed(1, 1, "");
    assert_eq!(cluster.evict("a-00"), "changed");
    let bucket = cluster.zone("a").bucket.clone();
    for name in ["a-00", "a-01"] {
        cluster.done(label(name, EXCLUDED, false));
    }
    cluster.assess();
    assert_eq!((cluster.zone_told("a").as_str(), &cluster.zone("a").bucket), ("Normal 0.1", &bucket));
}

#[test]
fn z_11_a_node_that_changes_its_zone_waits_in_the_new_zone_only() {
    let mut cluster = assessed(1, 2, "");
    assert_eq!(cluster.queue("a"), ["a-00", "a-01"]);
    cluster.done(label("a-00", "topology.kubernetes.io/zone=b", true));
    assert_eq!((cluster.queue("a"), cluster.queue("b")), (vec!["a-01".to_owned()], vec!["a-00".to_owned()]));
    assert_eq!(cluster.state.census_of(&key("b")).not_ready, 1);
    assert_eq!(
        cluster.refuses_leader(cluster.eviction("a-00")).to_string(),
        "the zones must be assessed before a node is evicted"
    );
}

#[test]
fn the_default_zone_is_that_of_nodes_without_zone_labels() {
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", "Ready=True");
    let applied = cluster.lead(LeaderOperation::AssessZones);
    let event = "ZoneStateChanged: zone default went from Initial to Normal: 1 of 1 nodes are ready, 0.1 nodes per second are evicted";
    assert_eq!(events(&applied), [event]);
}
