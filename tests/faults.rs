//! Our own faults, on real processes: a leader that freezes, a cluster that freezes, a cluster that is gone for
//! minutes, a replica lost for good. Whoever lives is not touched (I-05), whoever died is caught (I-23).
//!
//! Each takes as long as the fault it is about; they run side by side.
#![allow(clippy::unwrap_used)]

mod fleet;
mod support;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use fleet::{GRACE, nodes};
use support::{Cluster, eventually_within, pid_of, signal};

/// From when the fault is over: election, the reattach window, the grace and a sweep, on a busy machine.
const CAUGHT_WITHIN: Duration = Duration::from_secs(45);

/// The dead node is caught, and nobody else is touched: not then, and not in the two graces after.
fn assert_only_is_caught(cluster: &Cluster, dead: &str) {
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
fn freeze(cluster: &Cluster, ids: &[u64], duration: Duration, dead: &str) {
    let pids: Vec<u32> = ids.iter().map(|id| pid_of(&cluster.replica(*id))).collect();
    pids.iter().for_each(|pid| signal("-STOP", *pid));
    sleep(duration / 2);
    fleet::fleet(cluster, &["kill", "--node", dead]);
    sleep(duration / 2);
    pids.iter().for_each(|pid| signal("-CONT", *pid));
}

#[test]
fn f_03_a_leader_frozen_for_a_minute_hurts_nobody() {
    let cluster = fleet::start(30);
    let leader = cluster.leader();
    let dead = fleet::attached_to(&cluster, leader);
    freeze(&cluster, &[leader], Duration::from_secs(60), &dead);
    assert_only_is_caught(&cluster, &dead);
    cluster.settle();
}

#[test]
fn f_04_all_replicas_frozen_for_two_minutes_hurt_nobody() {
    let cluster = fleet::start(30);
    let dead = fleet::attached_to(&cluster, 1);
    freeze(&cluster, &[1, 2, 3], Duration::from_secs(120), &dead);
    assert_only_is_caught(&cluster, &dead);
    cluster.settle();
}

#[test]
fn f_02_all_replicas_killed_and_back_after_three_minutes_hurt_nobody() {
    let cluster = fleet::start(30);
    let dead = fleet::attached_to(&cluster, 2);
    [1, 2, 3].into_iter().for_each(|id| cluster.kill(id));
    sleep(Duration::from_secs(90));
    fleet::fleet(&cluster, &["kill", "--node", &dead]);
    sleep(Duration::from_secs(90));
    cluster.restart_all();
    cluster.leader();
    assert_only_is_caught(&cluster, &dead);
    cluster.settle();
}

/// The node dies together with the replica that heard it, which must not make it immortal.
#[test]
fn f_02_a_replica_lost_for_good_makes_nobody_immortal_and_hurts_nobody() {
    let cluster = fleet::start(30);
    let leader = cluster.leader();
    let lost = (1..=3).find(|id| *id != leader).unwrap();
    let dead = fleet::attached_to(&cluster, lost);
    fleet::fleet(&cluster, &["kill", "--node", &dead]);
    cluster.kill(lost);
    assert_only_is_caught(&cluster, &dead);
    sleep(GRACE * 2);
    fleet::assert_only_touched(&cluster, &BTreeSet::from([dead]));
}
