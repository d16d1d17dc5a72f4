//! The node lifecycle on a real cluster: three processes, a hundred simulated agents over TLS, short timings, and
//! the leader killed in the middle of everything.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use muster_testing::dev::DevCluster;
use muster_testing::fleet::{self, GRACE, UNREACHABLE, nodes, zone_state};
use muster_testing::operator::Operator;
use muster_testing::waiting::{eventually, eventually_within};

/// Long enough for several tokens, had there been any.
const SEVERAL_TOKENS: Duration = Duration::from_secs(6);

fn evicted(cluster: &DevCluster) -> BTreeSet<String> {
    nodes(cluster).into_iter().filter(|(_, seen)| seen.is_evicted()).map(|(name, _)| name).collect()
}

/// How long before its verdict a node was last heard, in milliseconds, as the event says.
fn silence_in(message: &str) -> u64 {
    let age = message.split("last heard ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    age.parse::<muster_lifecycle::time::Period>().unwrap().0
}

#[test]
fn a_silent_node_is_marked_unknown_and_tainted_and_a_failover_restarts_no_grace() {
    let cluster = fleet::start(100);
    let silent = "node-b-07";
    fleet::fleet(&cluster, &["silence", "--node", silent]);
    sleep(GRACE / 2);
    fleet::kill_the_leader(&cluster);
    let seen = eventually("the silent node is tainted for eviction", || {
        let seen = nodes(&cluster).remove(silent)?;
        seen.is_evicted().then_some(seen)
    });
    assert_eq!(seen.ready, "Unknown");
    let expected = [format!("{UNREACHABLE}:NoExecute"), format!("{UNREACHABLE}:NoSchedule")];
    assert_eq!(seen.taints, BTreeSet::from(expected));
    fleet::assert_only_touched(&cluster, &BTreeSet::from([silent.to_owned()]));
    let verdict = fleet::verdicts(&cluster).into_iter().find(|happening| happening.reason == "NodeNotReady").unwrap();
    let silence = silence_in(&verdict.message);
    let grace = u64::try_from(GRACE.as_millis()).unwrap();
    assert!(silence > grace, "judged {silence} ms after its last beat");
    // A grace that began anew with the new leader would end no earlier than this.
    assert!(silence < grace / 2 + grace + 700, "judged only {silence} ms after its last beat");

    fleet::fleet(&cluster, &["resume", "--node", silent]);
    fleet::kill_the_leader(&cluster);
    fleet::all_ready(&cluster);
    fleet::assert_only_touched(&cluster, &BTreeSet::from([silent.to_owned()]));
}

#[test]
fn i_06_sixty_percent_of_a_zone_silent_stops_its_evictions() {
    let cluster = fleet::start(100);
    fleet::fleet(&cluster, &["kill", "--zone", "b", "--percent", "60"]);
    let dead = fleet::first_of_zone(&cluster, "b", 19);
    sleep(GRACE / 2);
    fleet::kill_the_leader(&cluster);
    eventually("zone b is partially disrupted", || {
        (zone_state(&cluster, "dev/b") == "PartialDisruption").then_some(())
    });
    let before = evicted(&cluster);
    fleet::kill_the_leader(&cluster);
    sleep(SEVERAL_TOKENS);
    assert_eq!(evicted(&cluster), before, "a node was evicted although the zone is disrupted");
    assert_eq!(fleet::zone(&cluster, "dev/b")["status"]["evictionRate"], 0.0);
    assert_eq!(zone_state(&cluster, "dev/a"), "Normal");
    fleet::assert_only_touched(&cluster, &dead);
    fleet::assert_rate_held(&cluster, "b");

    fleet::fleet(&cluster, &["resume", "--zone", "b"]);
    fleet::kill_the_leader(&cluster);
    fleet::all_ready(&cluster);
    fleet::assert_only_touched(&cluster, &dead);
    eventually("zone b is normal again", || (zone_state(&cluster, "dev/b") == "Normal").then_some(()));
}

#[test]
fn i_04_a_fully_disrupted_zone_is_evicted_at_the_normal_rate_across_leaders() {
    let cluster = fleet::start(100);
    fleet::fleet(&cluster, &["silence", "--zone", "c"]);
    let dead = fleet::first_of_zone(&cluster, "c", 33);
    eventually("the evacuation has begun", || (evicted(&cluster).len() >= 5).then_some(()));
    assert_eq!(zone_state(&cluster, "dev/c"), "FullDisruption");
    fleet::kill_the_leader(&cluster);
    eventually("the evacuation goes on", || (evicted(&cluster).len() >= 12).then_some(()));
    fleet::kill_the_leader(&cluster);
    eventually_within(Duration::from_secs(120), "the zone is evacuated", || (evicted(&cluster) == dead).then_some(()));
    fleet::assert_only_touched(&cluster, &dead);
    fleet::assert_rate_held(&cluster, "c");

    fleet::fleet(&cluster, &["resume", "--all"]);
    fleet::kill_the_leader(&cluster);
    fleet::all_ready(&cluster);
    fleet::assert_only_touched(&cluster, &dead);
}

#[test]
fn i_06_full_disruption_stops_all_evictions_and_recovery_restores_the_rates() {
    let cluster = fleet::start(100);
    fleet::fleet(&cluster, &["silence", "--zone", "a"]);
    eventually("an evacuation is under way", || (evicted(&cluster).len() >= 3).then_some(()));
    fleet::fleet(&cluster, &["silence", "--all"]);
    let is_fully_disrupted = |cluster: &DevCluster| {
        let config: serde_json::Value = serde_json::from_str(&cluster.ok(&["get", "config", "-o", "json"])).unwrap();
        config["allZonesDisrupted"] == true
    };
    eventually("all zones are fully disrupted and the evictions are taken back", || {
        (is_fully_disrupted(&cluster) && evicted(&cluster).is_empty()).then_some(())
    });
    fleet::kill_the_leader(&cluster);
    sleep(SEVERAL_TOKENS);
    assert!(evicted(&cluster).is_empty(), "evicted in full disruption: {:?}", evicted(&cluster));
    assert!(is_fully_disrupted(&cluster));
    fleet::assert_rate_held(&cluster, "a");
    let before = fleet::verdicts(&cluster).len();

    fleet::fleet(&cluster, &["resume", "--all"]);
    fleet::kill_the_leader(&cluster);
    fleet::all_ready(&cluster);
    assert_eq!(fleet::verdicts(&cluster).len(), before, "a node was judged on coming back");
    eventually("all zones are normal", || {
        let normal = |zone: &&str| zone_state(&cluster, zone) == "Normal";
        (!is_fully_disrupted(&cluster) && ["dev/a", "dev/b", "dev/c"].iter().all(normal)).then_some(())
    });
}

/// I-05: agents beat at the pace of the longer grace until they are told of the shorter one.
#[test]
fn i_05_a_grace_shortened_at_run_time_marks_no_living_node() {
    let cluster = fleet::start_with(30, &["--zones", "3", "--policy", "upstream"]);
    sleep(Duration::from_secs(15));
    cluster.ok(&["set", "config", "node-monitor-period=1s", "node-monitor-grace-period=4s"]);
    sleep(Duration::from_secs(25));
    fleet::assert_only_touched(&cluster, &BTreeSet::new());
    fleet::fleet(&cluster, &["kill", "--node", "node-a-05"]);
    eventually("the new grace counts", || (nodes(&cluster)["node-a-05"].ready == "Unknown").then_some(()));
    fleet::assert_only_touched(&cluster, &BTreeSet::from(["node-a-05".to_owned()]));
}
