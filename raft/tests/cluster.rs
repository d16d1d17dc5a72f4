//! Whole clusters on simulated disks and wires: acknowledged writes survive, replicas that may not speak are refused.
#![allow(clippy::unwrap_used)]

#[path = "cluster/disks.rs"]
mod disks;
#[path = "cluster/forwarding.rs"]
mod forwarding;
mod harness;
#[path = "cluster/room.rs"]
mod room;
#[path = "cluster/samples.rs"]
mod samples;

use std::time::Duration;

use harness::{Cluster, PATIENCE, cordon, create, endpoint, eventually};
use muster_lifecycle::command::{Outcome, ReceiptEffect};
use muster_lifecycle::meta::Revision;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::membership::{MembershipChange, MembershipError};
use tokio::time::Instant;

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(_))
}

/// Creates `count` nodes and returns the names that were acknowledged.
async fn create_some(cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let through = cluster.leader();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        if cluster.create(through, &name, PATIENCE).await.is_ok_and(|outcome| is_done(&outcome)) {
            acknowledged.push(name);
        }
    }
    acknowledged
}

/// A linearizable read on every replica finds all of them.
async fn assert_present(cluster: &Cluster, names: &[String]) {
    for (id, running) in &cluster.running {
        running.replica.read_barrier(Instant::now() + PATIENCE).await.unwrap();
        let current = running.replica.current();
        for name in names {
            assert!(current.state.node(name).is_some(), "{name} was acknowledged and is missing on replica {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i_18_a_withheld_sync_is_never_acknowledged() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader();
    assert!(is_done(&cluster.create(leader, "before", PATIENCE).await.unwrap()));
    for disk in cluster.disks.values() {
        disk.withhold_sync(true);
    }
    let writer = cluster.replica(leader).clone();
    let writing = tokio::spawn(async move { writer.write(create("held"), Instant::now() + PATIENCE).await });
    eventually("some sync waits", || cluster.disks.values().any(|disk| disk.waiting_syncs() > 0)).await;
    assert!(!writing.is_finished());
    assert!(cluster.running.values().all(|running| running.replica.current().state.node("held").is_none()));
    for disk in cluster.disks.values() {
        disk.withhold_sync(false);
    }
    assert!(is_done(&writing.await.unwrap().unwrap().outcome));
}

#[tokio::test(flavor = "multi_thread")]
async fn i_08_power_loss_of_one_replica_loses_nothing_acknowledged() {
    for seed in 0..6 {
        let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
        let names = create_some(&cluster, "node", 20).await;
        let victim = if seed % 2 == 0 { cluster.leader() } else { ReplicaId(1 + seed % 3) };
        cluster.power_loss(victim, seed).await;
        cluster.settle().await;
        let more = create_some(&cluster, "later", 5).await;
        cluster.boot(victim).await;
        cluster.settle().await;
        assert_eq!((names.len(), more.len()), (20, 5), "seed {seed}");
        assert_present(&cluster, &names).await;
        assert_present(&cluster, &more).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i_08_power_loss_of_all_replicas_at_once_loses_nothing_acknowledged() {
    for seed in 0..6 {
        let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
        let names = create_some(&cluster, "node", 20).await;
        if seed % 2 == 1 {
            // Right after a snapshot and a purge, when the log alone no longer holds everything.
            for id in [1, 2, 3] {
                cluster.replica(ReplicaId(id)).backup(Instant::now() + PATIENCE).await.unwrap();
                cluster.replica(ReplicaId(id)).purge_behind_snapshot().await;
            }
        }
        for id in [1, 2, 3] {
            cluster.power_loss(ReplicaId(id), seed * 3 + id).await;
        }
        for id in [1, 2, 3] {
            cluster.boot(ReplicaId(id)).await;
        }
        cluster.settle().await;
        assert_eq!(names.len(), 20, "seed {seed}");
        assert_present(&cluster, &names).await;
        assert!(is_done(&cluster.create(ReplicaId(2), "after", PATIENCE).await.unwrap()), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i_24_a_retried_request_applies_once_across_replicas_and_leaders() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let request = create("once");
    let first = cluster.replica(ReplicaId(1)).write(request.clone(), Instant::now() + PATIENCE).await.unwrap();
    let again = cluster.replica(ReplicaId(2)).write(request.clone(), Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(first.outcome, again.outcome);
    let leader = cluster.leader();
    cluster.crash(leader).await;
    cluster.settle().await;
    let survivor = *cluster.running.keys().next().unwrap();
    let third = cluster.replica(survivor).write(request, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(first.outcome, third.outcome);
    let Outcome::Done(receipt) = first.outcome else { panic!("created") };
    assert_eq!(receipt.effect, ReceiptEffect::Created);
}

#[tokio::test(flavor = "multi_thread")]
async fn i_09_a_read_after_an_acknowledged_write_sees_it_on_every_replica() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    for number in 0..30 {
        let name = format!("node-{number}");
        assert!(is_done(&cluster.create(ReplicaId(1 + number % 3), &name, PATIENCE).await.unwrap()));
        let reader = cluster.replica(ReplicaId(1 + (number + 1) % 3));
        reader.read_barrier(Instant::now() + PATIENCE).await.unwrap();
        assert!(reader.current().state.node(&name).is_some(), "{name} is not there yet");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_is_acknowledged_and_the_silent_replicas_are_named() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    cluster.crash(ReplicaId(2)).await;
    cluster.crash(ReplicaId(3)).await;
    let refused = cluster.create(ReplicaId(1), "lonely", Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(refused, "no quorum: replicas 2, 3 unreachable");
    let read = cluster.replica(ReplicaId(1)).read_barrier(Instant::now() + Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(read.to_string(), "no quorum: replicas 2, 3 unreachable");
    cluster.boot(ReplicaId(2)).await;
    cluster.settle().await;
    assert!(is_done(&cluster.create(ReplicaId(1), "together", PATIENCE).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn i_11_a_watcher_sees_every_change_once_in_order_on_each_replica() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let start = cluster.replica(ReplicaId(1)).current().state.revision();
    let mut watchers: Vec<_> = (1..=3).map(|id| cluster.replica(ReplicaId(id)).feed().watch(start).unwrap()).collect();
    let leader = cluster.leader();
    for number in 0..40 {
        let name = format!("node-{}", number % 10);
        let command = if number < 10 { create(&name) } else { cordon(&name, number / 10 % 2 == 1) };
        cluster.replica(leader).write(command, Instant::now() + PATIENCE).await.unwrap();
    }
    cluster.settle().await;
    let end = cluster.replica(ReplicaId(1)).current().state.revision();
    let mut histories = Vec::new();
    for watcher in &mut watchers {
        let mut seen = Vec::new();
        while watcher.seen() < end {
            seen.extend(watcher.next().await.unwrap().iter().map(|change| change.revision));
        }
        assert_eq!(seen, (start.0 + 1..=end.0).map(Revision).collect::<Vec<_>>());
        histories.push(seen);
    }
    assert!(histories.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i_28_a_wiped_replica_is_replaced_under_a_new_id_and_catches_up_by_snapshot() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let names = create_some(&cluster, "node", 30).await;
    cluster.crash(ReplicaId(3)).await;
    cluster.settle().await;
    let leader = cluster.leader();
    // The log holds nothing that a new replica could replay.
    cluster.replica(leader).backup(Instant::now() + PATIENCE).await.unwrap();
    cluster.replica(leader).purge_behind_snapshot().await;
    let deadline = || Instant::now() + PATIENCE;
    cluster
        .replica(ReplicaId(1))
        .change_membership(&MembershipChange::Remove { id: ReplicaId(3) }, deadline())
        .await
        .unwrap();
    cluster.boot(ReplicaId(4)).await;
    let add = MembershipChange::Add { id: ReplicaId(4), endpoint: endpoint(ReplicaId(4)) };
    cluster.replica(ReplicaId(2)).change_membership(&add, deadline()).await.unwrap();
    eventually("the learner catches up", || cluster.replica(ReplicaId(4)).current().state.node(&names[29]).is_some())
        .await;
    eventually("the learner is known", || {
        cluster.replica(ReplicaId(1)).current().state.replicas().contains(&ReplicaId(4))
    })
    .await;
    cluster
        .replica(ReplicaId(1))
        .change_membership(&MembershipChange::Promote { id: ReplicaId(4) }, deadline())
        .await
        .unwrap();
    cluster.settle().await;
    assert_present(&cluster, &names).await;
    // Three voters again: any one of them may go.
    cluster.crash(ReplicaId(1)).await;
    cluster.settle().await;
    assert!(is_done(&cluster.create(ReplicaId(4), "after", PATIENCE).await.unwrap()));
    let again = MembershipChange::Add { id: ReplicaId(3), endpoint: endpoint(ReplicaId(3)) };
    let refused = cluster.replica(ReplicaId(4)).change_membership(&again, deadline()).await.unwrap_err();
    assert!(refused.to_string().contains("never reused"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i_28_messages_from_a_wiped_store_are_refused() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    create_some(&cluster, "node", 3).await;
    cluster.crash(ReplicaId(3)).await;
    cluster.settle().await;
    cluster.disks.insert(ReplicaId(3), muster_raft::disk::sim::SimDisk::new());
    cluster.boot_expecting_refusal(ReplicaId(3), "another store").await;
    assert!(is_done(&cluster.create(ReplicaId(1), "goes-on", PATIENCE).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_on_request_and_on_an_orderly_stop() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader();
    let heir = ReplicaId(1 + leader.0 % 3);
    let transfer = MembershipChange::Transfer { to: Some(heir) };
    let said = cluster.replica(heir).change_membership(&transfer, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(said, format!("replica {heir} leads now"));
    cluster.settle().await;
    let unknown = MembershipChange::Transfer { to: Some(ReplicaId(9)) };
    let refused = cluster.replica(heir).change_membership(&unknown, Instant::now() + PATIENCE).await.unwrap_err();
    assert_eq!(refused, MembershipError::NotMember { id: ReplicaId(9) });
    cluster.replica(heir).stop().await;
    eventually("another leads", || {
        let others = cluster.running.iter().filter(|(id, _)| **id != heir);
        others.map(|(_, running)| running.replica.leader()).all(|leader| leader.is_some_and(|leader| leader != heir))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i_28_a_change_that_could_never_be_committed_is_refused() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let deadline = || Instant::now() + PATIENCE;
    let add = MembershipChange::Add { id: ReplicaId(4), endpoint: endpoint(ReplicaId(4)) };
    cluster.replica(ReplicaId(1)).change_membership(&add, deadline()).await.unwrap();
    let promote = MembershipChange::Promote { id: ReplicaId(4) };
    let refused = cluster.replica(ReplicaId(1)).change_membership(&promote, deadline()).await.unwrap_err();
    assert!(refused.to_string().contains("has not been heard of yet"), "{refused}");
    cluster.crash(ReplicaId(3)).await;
    cluster.settle().await;
    let survivors: Vec<_> = cluster.running.keys().copied().collect();
    let follower = *survivors.iter().find(|id| **id != cluster.leader()).unwrap();
    let remove = MembershipChange::Remove { id: follower };
    let refused = cluster.replica(ReplicaId(1)).change_membership(&remove, deadline()).await.unwrap_err();
    assert!(refused.to_string().contains("majority of the voters would be silent"), "{refused}");
    let dead = MembershipChange::Remove { id: ReplicaId(3) };
    cluster.replica(ReplicaId(1)).change_membership(&dead, deadline()).await.unwrap();
    assert!(is_done(&cluster.create(ReplicaId(1), "goes-on", PATIENCE).await.unwrap()));
}
