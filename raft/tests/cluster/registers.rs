//! Reads and writes through all replicas are linearizable (I-09) while links are cut and replicas lose their power.

use std::time::Duration;

use muster_checker::load::{LoadPlan, RegisterDoor, RegisterFailure, RegisterLoad};
use muster_checker::register::{Bystanders, RegisterValue};
use muster_checker::search::NotLinearizable;
use muster_lifecycle::command::{OperatorOperation, Outcome, Precondition};
use muster_lifecycle::meta::Revision;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::replica::Replica;
use tokio::time::Instant;

use crate::harness::{Cluster, PATIENCE, ReplicaSlot, command, eventually};

const IDS: [ReplicaId; 3] = [ReplicaId(1), ReplicaId(2), ReplicaId(3)];
const ANNOTATION: &str = "muster.test/register";
const CALL_PATIENCE: Duration = Duration::from_secs(1);
const KEYS: usize = 3;
/// Acknowledged writes that must pass before and during each fault.
const WRITES_PER_STEP: u64 = 30;

struct ReplicaDoor {
    id: ReplicaId,
    slot: ReplicaSlot,
    /// Whether reads ask the leader how far they must wait, as they should.
    asks: bool,
}

// === impl ReplicaDoor ===

impl ReplicaDoor {
    fn running(&self) -> Option<Replica> {
        self.slot.lock().unwrap().clone()
    }
}

impl RegisterDoor for ReplicaDoor {
    fn replica(&self) -> u64 {
        self.id.0
    }

    async fn read(&self, key: usize, stale: bool) -> Result<(Option<RegisterValue>, u64), RegisterFailure> {
        let replica = self.running().ok_or(RegisterFailure::Failed)?;
        if self.asks && !stale {
            let confirmed = replica.read_barrier(Instant::now() + CALL_PATIENCE).await;
            confirmed.map_err(|_| RegisterFailure::Failed)?;
        }
        let current = replica.current();
        // A replica that has just started may know nothing yet, and says so by a failure.
        let node = current.state.node(&name(key)).ok_or(RegisterFailure::Failed)?;
        let value = node.meta.annotations.get(ANNOTATION).map(|value| value.parse().unwrap());
        Ok((value, node.meta.revision.0))
    }

    async fn write(&self, key: usize, value: RegisterValue, expected: Option<u64>) -> Result<u64, RegisterFailure> {
        let replica = self.running().ok_or(RegisterFailure::Failed)?;
        let operation = OperatorOperation::AnnotateNode {
            name: name(key).as_str().into(),
            changes: vec![(ANNOTATION.into(), Some(value.to_string().as_str().into()))],
            overwrite: true,
            precondition: Precondition { revision: expected.map(Revision), uid: None },
        };
        match replica.write(command(operation), Instant::now() + CALL_PATIENCE).await.map(|written| written.outcome) {
            Ok(Outcome::Done(receipt)) => Ok(receipt.revision.0),
            Ok(Outcome::Rejected(Rejection::Conflict { .. })) => Err(RegisterFailure::Conflict),
            Ok(Outcome::Rejected(rejection)) => panic!("{rejection}"),
            Err(_) => Err(RegisterFailure::Unknown),
        }
    }
}

fn name(key: usize) -> String {
    format!("register-{key}")
}

async fn start() -> (Cluster, RegisterLoad) {
    start_with(true).await
}

async fn start_with(asks: bool) -> (Cluster, RegisterLoad) {
    let cluster = Cluster::start(&IDS).await;
    for key in 0..KEYS {
        cluster.create(cluster.leader(), &name(key), PATIENCE).await.unwrap();
    }
    let plan =
        LoadPlan { keys: KEYS, pause: Duration::from_millis(5), bystanders: Bystanders::Absent, ..LoadPlan::default() };
    let door = |(id, slot): (&ReplicaId, &ReplicaSlot)| ReplicaDoor { id: *id, slot: slot.clone(), asks };
    let load = RegisterLoad::start(|| cluster.slots.iter().map(door).collect(), plan);
    (cluster, load)
}

async fn writes_flow(load: &RegisterLoad, when: &str) {
    let before = load.acknowledged();
    eventually(&format!("writes flow {when}"), || load.acknowledged() > before + WRITES_PER_STEP).await;
}

/// A leader among those that run, which all of them follow.
async fn settled_leader(cluster: &Cluster) -> ReplicaId {
    eventually("all follow one leader", || {
        let mut leaders: Vec<_> = cluster.running.values().map(|running| running.replica.leader()).collect();
        leaders.dedup();
        matches!(leaders[..], [Some(leader)] if cluster.running.contains_key(&leader))
    })
    .await;
    cluster.leader()
}

fn others(id: ReplicaId) -> impl Iterator<Item = ReplicaId> {
    IDS.into_iter().filter(move |other| *other != id)
}

async fn finish(cluster: &Cluster, load: RegisterLoad, terms: usize) {
    writes_flow(&load, "at the end").await;
    let history = load.finish();
    cluster.settle().await;
    let (seen, reports) = cluster.consensus.extent();
    assert!(seen >= terms && reports > 100, "the watch saw {seen} terms in {reports} reports");
    history.assert_linearizable();
}

#[tokio::test(flavor = "multi_thread")]
async fn i_09_i_16_cut_links_leave_reads_and_writes_linearizable() {
    let (cluster, load) = start().await;
    for round in 0..4 {
        let leader = settled_leader(&cluster).await;
        let cut = if round % 2 == 0 { leader } else { others(leader).next().unwrap() };
        writes_flow(&load, "before a replica is cut off").await;
        others(cut).for_each(|other| cluster.wires.cut(cut, other));
        writes_flow(&load, "while a replica is cut off").await;
        cluster.wires.heal();
    }
    let history = load.finish();
    cluster.settle().await;
    assert!(cluster.consensus.extent().0 >= 3, "the leader was cut off twice");
    history.assert_linearizable();
    history.assert_stale_reads_advance();
}

/// The check can fail: replicas that answered from what they have would be found.
#[tokio::test(flavor = "multi_thread")]
async fn i_09_reads_that_do_not_ask_the_leader_would_be_found() {
    let (cluster, load) = start_with(false).await;
    let cut = others(settled_leader(&cluster).await).next().unwrap();
    writes_flow(&load, "before a replica is cut off").await;
    others(cut).for_each(|other| cluster.wires.cut(cut, other));
    writes_flow(&load, "while a replica is cut off").await;
    let found = load.finish().check();
    assert!(matches!(found, Err(NotLinearizable::Violation(_))), "{found:?}");
}

/// The leader and one follower do not reach each other; the third replica reaches both.
#[tokio::test(flavor = "multi_thread")]
async fn f_07_one_link_that_flaps_leaves_reads_and_writes_linearizable() {
    let (cluster, load) = start().await;
    for _ in 0..6 {
        let leader = settled_leader(&cluster).await;
        cluster.wires.cut(leader, others(leader).next().unwrap());
        writes_flow(&load, "over a bridge").await;
        cluster.wires.heal();
    }
    let history = load.finish();
    cluster.settle().await;
    history.assert_linearizable();
    history.assert_stale_reads_advance();
}

#[tokio::test(flavor = "multi_thread")]
async fn i_09_i_16_power_loss_leaves_reads_and_writes_linearizable() {
    let (mut cluster, load) = start().await;
    for seed in 0..4 {
        let leader = settled_leader(&cluster).await;
        let victim = if seed % 2 == 0 { leader } else { others(leader).next().unwrap() };
        writes_flow(&load, "before a power loss").await;
        cluster.power_loss(victim, seed).await;
        writes_flow(&load, "after a power loss").await;
        cluster.boot(victim).await;
    }
    settled_leader(&cluster).await;
    writes_flow(&load, "before all lose their power").await;
    for id in IDS {
        cluster.power_loss(id, id.0).await;
    }
    for id in IDS {
        cluster.boot(id).await;
    }
    finish(&cluster, load, 3).await;
}
