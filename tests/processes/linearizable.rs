//! Operators' reads and writes are linearizable (I-09) while the leader is killed and frozen, on real processes.
//!
//! `MUSTER_ROUNDS` sets how often; `.ci/soak` asks for many.

use std::time::Duration;

use muster_testing::dev::{DevCluster, pid_of};
use muster_testing::operator::Operator;
use muster_testing::process::signal;
use muster_testing::registers::{self, RegisterLoad};
use muster_testing::waiting::eventually;

const ROUNDS: usize = 3;
const OPERATOR_PAUSE: Duration = Duration::from_millis(20);
/// Acknowledged writes that must pass before and during each fault.
const WRITES_PER_STEP: u64 = 40;

fn rounds() -> usize {
    let asked = std::env::var("MUSTER_ROUNDS").ok();
    asked.map_or(ROUNDS, |rounds| rounds.parse().expect("MUSTER_ROUNDS is a number"))
}

fn start() -> (DevCluster, RegisterLoad) {
    let cluster = DevCluster::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let names = runtime.block_on(registers::create_nodes(&cluster.client(), 3));
    let load = registers::load_on(&cluster.client_config(), &names, OPERATOR_PAUSE);
    (cluster, load)
}

fn writes_flow(load: &RegisterLoad, when: &str) {
    let before = load.acknowledged();
    eventually(&format!("writes flow {when}"), || (load.acknowledged() > before + WRITES_PER_STEP).then_some(()));
}

#[test]
fn f_01_i_09_killing_the_leader_leaves_reads_and_writes_linearizable() {
    let (cluster, load) = start();
    for _ in 0..rounds() {
        writes_flow(&load, "before the leader is killed");
        let leader = cluster.leader();
        cluster.kill(leader);
        writes_flow(&load, "after the leader was killed");
        cluster.restart(leader);
    }
    let history = load.finish();
    cluster.settle();
    history.assert_linearizable();
}

/// The others elect a leader while the old one stands still. When it goes on, it still believes that it leads, and must
/// not answer from what it knows.
#[test]
fn f_03_i_09_freezing_the_leader_leaves_reads_and_writes_linearizable() {
    let (cluster, load) = start();
    for _ in 0..rounds() {
        writes_flow(&load, "before the leader freezes");
        let leader = cluster.leader();
        let pid = pid_of(&cluster.replica(leader));
        signal("-STOP", pid);
        eventually("another leads", || {
            let now = cluster.status()?["leader"].as_u64()?;
            (now != leader).then_some(())
        });
        writes_flow(&load, "while the old leader stands still");
        signal("-CONT", pid);
    }
    writes_flow(&load, "at the end");
    let history = load.finish();
    cluster.settle();
    history.assert_linearizable();
    history.assert_stale_reads_advance();
}
