//! Writes through followers: every operation of every role, through the leader, through each follower, and through a
//! follower whose leader has just died.

use std::time::Duration;

use futures::future::join_all;
use muster_lifecycle::command::{Command, Outcome};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::proposer::{Committed, ProposeError};
use muster_raft::replica::{Replica, RequestError};
use tokio::time::Instant;

use crate::harness::{Cluster, PATIENCE};
use crate::samples;

const RETRY_PAUSE: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_operators_and_agents_is_written_through_every_replica() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    for (id, running) in &cluster.running {
        let through = format!("through-{id}");
        expect_written(&running.replica, asked(&running.replica, &through)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_written_through_a_follower_whose_leader_has_just_died() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    cluster.crash(cluster.leader()).await;
    for (id, running) in &cluster.running {
        let through = format!("orphaned-{id}");
        expect_written(&running.replica, asked(&running.replica, &through)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leaders_own_operations_are_written_by_the_leader_and_forwarded_by_no_follower() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader();
    let own = |replica: &Replica| {
        let replicas = samples::of_replicas(replica.current().state.replicas().get(&replica.id()).unwrap());
        samples::of_the_leader(replica.term()).into_iter().chain(replicas.of_the_leader).collect::<Vec<_>>()
    };
    for (id, running) in &cluster.running {
        for command in own(&running.replica) {
            let what = command.operation.label();
            if *id == leader {
                running.replica.propose(command).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            } else {
                expect_denied(&running.replica, command).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_forwarded_only_in_the_name_of_its_own_role() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let follower = &cluster.running.iter().find(|(id, _)| **id != cluster.leader()).unwrap().1.replica;
    for command in asked(follower, "impostor") {
        for command in samples::under_other_names(&command) {
            expect_denied(follower, command).await;
        }
    }
}

/// Every command that this replica may be asked for by operators and agents, and its own announcement.
fn asked(replica: &Replica, suffix: &str) -> Vec<Command> {
    let replicas = samples::of_replicas(replica.current().state.replicas().get(&replica.id()).unwrap());
    let (operators, agents) = (samples::of_operators(suffix), samples::of_agents(suffix));
    operators.into_iter().chain(agents).chain(replicas.forwarded).collect()
}

async fn expect_written(replica: &Replica, commands: Vec<Command>) {
    join_all(commands.into_iter().map(async |command| {
        let (what, through) = (command.operation.label(), replica.id());
        let committed = write(replica, command).await;
        let committed = committed.unwrap_or_else(|error| panic!("{what} through replica {through}: {error}"));
        if let Outcome::Rejected(why @ Rejection::NotEntitled { .. }) = committed.outcome {
            panic!("{what} through replica {through}: {why}");
        }
    }))
    .await;
}

/// A command without a request id is sent again by its writer while it is not known whether it was written.
async fn write(replica: &Replica, command: Command) -> Result<Committed, RequestError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match replica.write(command.clone(), deadline).await {
            Err(RequestError::Forwarding(_) | RequestError::Refused(ProposeError::Unknown))
                if command.request.is_none() && Instant::now() < deadline =>
            {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            written => return written,
        }
    }
}

/// The refusal comes at once, and says what it is: no quorum is missing.
async fn expect_denied(replica: &Replica, command: Command) {
    let (what, origin) = (command.operation.label(), command.origin.clone());
    let began = Instant::now();
    let refused = replica.write(command, began + PATIENCE).await.expect_err(what);
    assert!(refused.to_string().contains("may not be forwarded"), "{what} of {origin}: {refused}");
    assert!(began.elapsed() < PATIENCE / 4, "{what} of {origin} was refused only after {:?}", began.elapsed());
}
