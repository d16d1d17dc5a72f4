//! Disks that take no writes: nearly full, or slow. Leadership goes to a replica that can write, and only there.

use std::time::Duration;

use muster_lifecycle::command::{Command, LeaderOperation, Origin};
use muster_lifecycle::replica::ReplicaId;
use muster_raft::log_store::RESERVE_BYTES;
use muster_raft::membership::{MembershipChange, MembershipError};
use muster_raft::replica::Replica;
use tokio::time::Instant;

use crate::harness::{Cluster, PATIENCE, SYNCS, eventually};
use crate::is_done;

/// How long the cluster is watched for a change that must not come: some elections, and some looks at the disk.
const WATCHED: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn f_23_a_leader_whose_disk_is_nearly_full_hands_over_and_verdicts_go_on() {
    let cluster = three().await;
    let full = cluster.leader();
    fill(&cluster, full);
    let heir = another_leads(&cluster, full).await;
    judges(&cluster, heir).await;
    for id in cluster.running.keys() {
        let name = format!("through-{id}");
        assert!(is_done(&cluster.create(*id, &name, PATIENCE).await.unwrap()), "through replica {id}");
    }
    let said = cannot_write(cluster.replica(heir), full).await;
    assert!(said.is_some_and(|why| why.contains("nearly full")), "its hello does not tell");
    let refused = transfer(cluster.replica(heir), full).await.unwrap_err();
    assert!(matches!(&refused, MembershipError::CannotWrite { id, .. } if *id == full), "{refused}");
    assert!(refused.to_string().contains("nearly full"), "{refused}");
    assert_eq!(cluster.leader(), heir, "a refused transfer changes nothing");

    cluster.disks[&full].set_capacity(None);
    eventually("the disk is well again", || cluster.replica(full).disk_trouble().is_none()).await;
    cluster.settle().await;
    transfer(cluster.replica(heir), full).await.unwrap();
    judges(&cluster, full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_23_a_replica_whose_disk_is_nearly_full_does_not_stand_for_election() {
    let mut cluster = three().await;
    let leader = cluster.leader();
    let full = ReplicaId(1 + leader.0 % 3);
    fill(&cluster, full);
    eventually("it knows that its disk is full", || cluster.replica(full).disk_trouble().is_some()).await;
    let able = *cluster.running.keys().find(|id| **id != leader && **id != full).unwrap();
    cluster.crash(leader).await;
    let term = cluster.replica(able).term();
    eventually("the replica that can write leads", || {
        let leads = cluster.replica(full).leader();
        assert_ne!(leads.filter(|_| cluster.replica(full).term() > term), Some(full), "the full one leads");
        leads == Some(able)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_23_a_leader_keeps_leading_if_the_others_cannot_write_either() {
    let cluster = three().await;
    let (leader, term) = (cluster.leader(), cluster.replica(cluster.leader()).term());
    cluster.running.keys().filter(|id| **id != leader).for_each(|id| fill(&cluster, *id));
    fill(&cluster, leader);
    let leads = cluster.replica(leader);
    let began = Instant::now();
    eventually("all know that their disks are full", || {
        cluster.running.values().all(|running| running.replica.disk_trouble().is_some())
    })
    .await;
    while began.elapsed() < WATCHED {
        let refused = cluster.create(leader, "refused", PATIENCE).await.unwrap_err();
        assert!(refused.contains("free some space, writes resume by themselves"), "{refused}");
        assert_eq!((leads.leader(), leads.term()), (Some(leader), term), "leadership moved");
        leads.read_barrier(Instant::now() + PATIENCE).await.expect("reads go on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() < PATIENCE / 2, "refusals took {:?}", began.elapsed());
    cluster.disks.values().for_each(|disk| disk.set_capacity(None));
    eventually("the disks are well again", || {
        cluster.running.values().all(|running| running.replica.disk_trouble().is_none())
    })
    .await;
    assert!(is_done(&cluster.create(leader, "accepted", PATIENCE).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_22_a_leader_whose_disk_is_slow_hands_over_and_is_able_again_when_it_is_quick() {
    let cluster = three().await;
    let slow = cluster.leader();
    cluster.disks[&slow].slow_syncs(SYNCS.slow * 3 / 2);
    let (began, mut number) = (Instant::now(), 0);
    let heir = loop {
        assert!(began.elapsed() < PATIENCE, "replica {slow} still leads after {number} writes");
        number += 1;
        let name = format!("node-{number}");
        assert!(is_done(&cluster.create(slow, &name, PATIENCE).await.unwrap()), "{name}");
        let leaders: Vec<_> = cluster.running.values().filter_map(|running| running.replica.leader()).collect();
        match leaders.iter().find(|leader| **leader != slow) {
            Some(heir) => break *heir,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let trouble = cluster.replica(slow).disk_trouble().expect("it says what is wrong").to_string();
    assert!(trouble.contains("every sync has taken more than 300 ms"), "{trouble}");
    judges(&cluster, heir).await;
    cluster.disks[&slow].slow_syncs(Duration::ZERO);
    // Nothing is written any more: the replica finds out by itself.
    eventually("the disk is well again", || cluster.replica(slow).disk_trouble().is_none()).await;
}

async fn three() -> Cluster {
    Cluster::start(&[1, 2, 3].map(ReplicaId)).await
}

fn fill(cluster: &Cluster, id: ReplicaId) {
    cluster.disks[&id].set_capacity(Some(RESERVE_BYTES));
}

async fn another_leads(cluster: &Cluster, former: ReplicaId) -> ReplicaId {
    eventually("another replica leads", || {
        cluster.running.values().all(|running| running.replica.leader().is_some_and(|leader| leader != former))
    })
    .await;
    cluster.leader()
}

/// A verdict of the leader is written.
async fn judges(cluster: &Cluster, leader: ReplicaId) {
    let replica = cluster.replica(leader);
    let origin = Origin::Controller { term: replica.term() };
    let command = Command { origin, request: None, operation: LeaderOperation::AssessZones.into() };
    replica.propose(command).await.unwrap_or_else(|error| panic!("replica {leader}: {error}"));
}

async fn cannot_write(asking: &Replica, asked: ReplicaId) -> Option<String> {
    asking.reach_members().await.remove(&asked).unwrap().unwrap().cannot_write
}

async fn transfer(leader: &Replica, to: ReplicaId) -> Result<String, MembershipError> {
    leader.change_membership(&MembershipChange::Transfer { to: Some(to) }, Instant::now() + PATIENCE).await
}
