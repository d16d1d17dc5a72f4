//! Our own faults, on real processes: a leader that freezes, a cluster that freezes, a cluster that is gone for
//! minutes, a replica lost for good. A node that lives is not touched (I-05), a node that died is caught (I-23), and
//! what operators read and write meanwhile is linearizable (I-09).
//!
//! Each takes as long as its fault, with next to nothing to do meanwhile: they run side by side as one test.

use std::collections::BTreeSet;
use std::thread::{scope, sleep};
use std::time::Duration;

use muster_testing::dev::{DevCluster, pid_of};
use muster_testing::fleet::{self, GRACE, nodes};
use muster_testing::operator::Operator;
use muster_testing::process::signal;
use muster_testing::registers::{self, RegisterLoad};
use muster_testing::waiting::eventually_within;

/// From the end of the fault on: election, the reattach window, the grace and a sweep, on a busy machine.
const CAUGHT_WITHIN: Duration = Duration::from_secs(45);

/// The pause of each operator between two calls: four clusters share the machine.
const OPERATOR_PAUSE: Duration = Duration::from_millis(400);

#[test]
fn faults_of_replicas_touch_no_living_node() {
    scope(|scope| {
        scope.spawn(f_03_a_leader_frozen_for_a_minute_touches_no_living_node);
        scope.spawn(f_04_all_replicas_frozen_for_two_minutes_touch_no_living_node);
        scope.spawn(f_02_all_replicas_killed_and_back_after_three_minutes_touch_no_living_node);
        scope.spawn(f_02_after_a_replica_is_lost_for_good_dead_nodes_are_marked_and_no_living_node_is_touched);
    });
}

/// Thirty nodes, some of which operators annotate and read through all replicas.
fn start() -> (DevCluster, RegisterLoad) {
    let mut cluster = fleet::start(30);
    cluster.give_up_turn();
    let names: Vec<String> = nodes(&cluster).into_keys().take(3).collect();
    let load = registers::load_on(&cluster.client_config(), &names, OPERATOR_PAUSE);
    (cluster, load)
}

/// The dead node is caught, and no other node is touched: not then, and not in the two graces after.
fn assert_only_is_caught(cluster: &DevCluster, dead: &str) {
    eventually_within(CAUGHT_WITHIN, "the dead node is marked and tainted", || {
        let seen = nodes(cluster).remove(dead)?;
        (seen.ready == "Unknown" && seen.is_evicted()).then_some(())
    });
    sleep(GRACE * 2);
    fleet::assert_only_touched(cluster, &BTreeSet::from([dead.to_owned()]));
    let not_ready: Vec<String> =
        nodes(cluster).into_iter().filter(|(_, seen)| !seen.is_ready()).map(|(name, _)| name).collect();
    assert_eq!(not_ready, [dead]);
}

/// Freezes replicas; in the middle of it a node dies.
fn freeze(cluster: &DevCluster, ids: &[u64], duration: Duration, dead: &str) {
    let pids: Vec<u32> = ids.iter().map(|id| pid_of(&cluster.replica(*id))).collect();
    pids.iter().for_each(|pid| signal("-STOP", *pid));
    sleep(duration / 2);
    fleet::fleet(cluster, &["kill", "--node", dead]);
    sleep(duration / 2);
    pids.iter().for_each(|pid| signal("-CONT", *pid));
}

fn f_03_a_leader_frozen_for_a_minute_touches_no_living_node() {
    let (cluster, load) = start();
    let leader = cluster.leader();
    let dead = fleet::attached_to(&cluster, leader);
    freeze(&cluster, &[leader], Duration::from_secs(60), &dead);
    assert_only_is_caught(&cluster, &dead);
    load.finish().assert_linearizable();
    cluster.settle();
}

fn f_04_all_replicas_frozen_for_two_minutes_touch_no_living_node() {
    let (cluster, load) = start();
    let dead = fleet::attached_to(&cluster, 1);
    freeze(&cluster, &[1, 2, 3], Duration::from_secs(120), &dead);
    assert_only_is_caught(&cluster, &dead);
    load.finish().assert_linearizable();
    cluster.settle();
}

fn f_02_all_replicas_killed_and_back_after_three_minutes_touch_no_living_node() {
    let (cluster, load) = start();
    let dead = fleet::attached_to(&cluster, 2);
    [1, 2, 3].into_iter().for_each(|id| cluster.kill(id));
    sleep(Duration::from_secs(90));
    fleet::fleet(&cluster, &["kill", "--node", &dead]);
    sleep(Duration::from_secs(90));
    cluster.restart_all();
    cluster.leader();
    assert_only_is_caught(&cluster, &dead);
    load.finish().assert_linearizable();
    cluster.settle();
}

/// The node dies together with the replica that heard it, which must not make it immortal.
fn f_02_after_a_replica_is_lost_for_good_dead_nodes_are_marked_and_no_living_node_is_touched() {
    let (cluster, load) = start();
    let leader = cluster.leader();
    let lost = (1..=3).find(|id| *id != leader).unwrap();
    let dead = fleet::attached_to(&cluster, lost);
    fleet::fleet(&cluster, &["kill", "--node", &dead]);
    cluster.kill(lost);
    assert_only_is_caught(&cluster, &dead);
    sleep(GRACE * 2);
    fleet::assert_only_touched(&cluster, &BTreeSet::from([dead]));
    load.finish().assert_linearizable();
}
