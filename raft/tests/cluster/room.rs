//! Room for writes: each class of writers has its own, and a writer that finds none waits instead of failing.

use std::time::Duration;

use futures::future::join_all;
use muster_lifecycle::command::{Command, LeaderOperation, Origin};
use muster_lifecycle::replica::ReplicaId;
use muster_raft::proposer::{ProposeError, WriterClass};
use muster_raft::replica::{Replica, RequestError};
use tokio::time::Instant;

use crate::harness::{Cluster, PATIENCE, create, eventually};
use crate::is_done;

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_that_use_up_their_room_do_not_turn_operators_away() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.replica(cluster.leader()).clone();
    stop_disks(&cluster, true).await;
    let verdicts = tokio::spawn(propose_verdicts(leader.clone(), 2 * WriterClass::Leader.room()));
    // Those that do not fit are refused at once, all others wait for the disks.
    let full = || futures::FutureExt::now_or_never(leader.propose(verdict(&leader)));
    eventually("the room for verdicts is used up", || matches!(full(), Some(Err(ProposeError::Overloaded(_))))).await;
    let through: Vec<_> = cluster.running.values().map(|running| running.replica.clone()).collect();
    let writes: Vec<_> = through
        .into_iter()
        .map(|replica| {
            let command = create(&format!("through-{}", replica.id()));
            tokio::spawn(async move { replica.write(command, Instant::now() + PATIENCE).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop_disks(&cluster, false).await;
    for written in join_all(writes).await {
        assert!(is_done(&written.unwrap().unwrap().outcome));
    }
    let refused = verdicts.await.unwrap();
    assert!(refused >= WriterClass::Leader.room() / 2, "{refused} refused: the room was never used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_that_find_no_room_wait_for_it_until_their_deadline() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    // A follower has as much room as the leader, besides the calls under way.
    let count = 2 * WriterClass::Operators.room();
    for (id, running) in &cluster.running {
        stop_disks(&cluster, true).await;
        let replica = &running.replica;
        let writes: Vec<_> = (0..count)
            .map(|number| {
                let (replica, command) = (replica.clone(), create(&format!("node-{id}-{number}")));
                tokio::spawn(async move { replica.write(command, Instant::now() + PATIENCE).await })
            })
            .collect();
        finds_no_room(replica).await;
        stop_disks(&cluster, false).await;
        for written in join_all(writes).await {
            assert!(is_done(&written.unwrap().unwrap_or_else(|error| panic!("through replica {id}: {error}")).outcome));
        }
        cluster.settle().await;
    }
}

/// Once the room is used up, a write with a near deadline is told so: a full queue is no lost quorum.
async fn finds_no_room(replica: &Replica) {
    let told = async {
        loop {
            let refused = replica.write(create("short"), Instant::now() + Duration::from_millis(400)).await;
            if matches!(refused, Err(RequestError::Refused(ProposeError::Overloaded(_)))) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("replica {} never had no room", replica.id()));
}

/// The disks of the followers stop, so that nothing is committed while the leader goes on leading.
async fn stop_disks(cluster: &Cluster, stop: bool) {
    let leader = cluster.leader();
    cluster.disks.iter().filter(|(id, _)| **id != leader).for_each(|(_, disk)| disk.withhold_sync(stop));
}

/// How many of these were refused.
async fn propose_verdicts(leader: Replica, count: usize) -> usize {
    let answers = join_all((0..count).map(|_| leader.propose(verdict(&leader)))).await;
    answers.iter().filter(|answer| matches!(answer, Err(ProposeError::Overloaded(_)))).count()
}

fn verdict(leader: &Replica) -> Command {
    let origin = Origin::Controller { term: leader.term() };
    Command { origin, request: None, operation: LeaderOperation::AssessZones.into() }
}
