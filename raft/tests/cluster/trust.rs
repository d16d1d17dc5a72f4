//! Replicas that must not be trusted: wiped, gone back in time, diverged, halted. They are found, say so, and the
//! cluster loses nothing by them.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_lifecycle::command::{Outcome, Position};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::{ReplicaId, ReplicaTrouble};
use muster_lifecycle::state::{Applied, State};
use muster_raft::abort::RecordAbort;
use muster_raft::disk::sim::SimDisk;
use muster_raft::encoded::EncodedBatch;
use muster_raft::halt::HALT_FILE;
use muster_raft::log_store::StoreOwner;
use muster_raft::store::{ReplicaStore, Restoration};
use muster_raft::types::Endpoint;

use crate::harness::{Cluster, PATIENCE, endpoint, eventually};

const IDS: [ReplicaId; 3] = [ReplicaId(1), ReplicaId(2), ReplicaId(3)];
/// Long enough for several elections, so that a leader that should not be would be there.
const SHORT: Duration = Duration::from_secs(3);

fn done(outcome: &Result<Outcome, String>) -> bool {
    matches!(outcome, Ok(Outcome::Done(_)))
}

/// The disk as it is now, on hardware of its own.
fn copy_of(disk: &SimDisk) -> SimDisk {
    let copy = SimDisk::new();
    let mount = copy.mount();
    for name in disk.names() {
        let file = mount.create(&name).unwrap();
        file.write_at(0, &disk.content(&name).unwrap()).unwrap();
        file.sync().unwrap();
    }
    mount.sync_dir().unwrap();
    copy
}

fn trouble(cluster: &Cluster, id: ReplicaId) -> Option<ReplicaTrouble> {
    cluster.replica(id).standing().trouble().map(|(trouble, _)| trouble)
}

async fn goes_back(cluster: &mut Cluster, id: ReplicaId, older: &SimDisk) {
    if cluster.running.contains_key(&id) {
        cluster.crash(id).await;
    }
    cluster.disks.insert(id, copy_of(older));
    cluster.boot(id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i_28_a_replica_wiped_before_it_was_announced_is_refused() {
    let mut cluster = Cluster::prepare(&IDS);
    cluster.announces = false;
    for id in IDS {
        cluster.boot(id).await;
    }
    cluster.settle().await;
    assert!(done(&cluster.create(cluster.leader(), "early", PATIENCE).await));
    assert_eq!(cluster.replica(ReplicaId(1)).current().state.replicas().len(), 0, "no store is announced");
    let wiped = ReplicaId(1 + cluster.leader().0 % 3);
    let witness = *IDS.iter().find(|id| **id != wiped && **id != cluster.leader()).unwrap();
    let leader = cluster.leader();
    cluster.crash(wiped).await;
    cluster.disks.insert(wiped, SimDisk::new());
    cluster.boot_expecting_refusal(wiped, "another store").await;
    // The one that it did not speak to directly knows it too, also after a restart.
    cluster.crash(leader).await;
    cluster.power_loss(witness, 1).await;
    cluster.boot(witness).await;
    cluster.disks.insert(wiped, SimDisk::new());
    cluster.boot_expecting_refusal(wiped, "another store").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_28_a_replica_that_went_back_takes_no_part_and_the_acknowledged_write_survives() {
    let mut cluster = Cluster::start(&IDS).await;
    let (a, b) = (cluster.leader(), ReplicaId(1 + cluster.leader().0 % 3));
    let c = *IDS.iter().find(|id| **id != a && **id != b).unwrap();
    cluster.crash(b).await;
    let older = copy_of(&cluster.disks[&b]);
    cluster.boot(b).await;
    cluster.settle().await;
    cluster.crash(c).await;
    assert!(done(&cluster.create(a, "x", PATIENCE).await), "acknowledged by A and B");
    goes_back(&mut cluster, b, &older).await;
    eventually("B finds out that it went back", || trouble(&cluster, b) == Some(ReplicaTrouble::WentBack)).await;
    let text = cluster.replica(b).standing().exclusion().unwrap().to_string();
    assert!(text.contains("went back in time") && text.contains(&format!("muster member remove {b}")), "{text}");
    eventually("A says so too", || cluster.replica(a).distrusted().contains_key(&b)).await;
    // A dies. B and C alone must not elect a leader: C has never seen x, and B has forgotten it.
    cluster.crash(a).await;
    cluster.boot(c).await;
    assert!(cluster.create(c, "without-a", SHORT).await.is_err());
    assert!(cluster.running.values().all(|running| running.replica.leader().is_none_or(|leader| leader == a)));
    cluster.boot(a).await;
    eventually("C has x", || cluster.replica(c).current().state.node("x").is_some()).await;
    assert!(done(&cluster.create(c, "with-a", PATIENCE).await));
    assert!(cluster.replica(b).current().state.node("with-a").is_none(), "B takes nothing");
    assert!(cluster.create(b, "through-b", SHORT).await.unwrap_err().contains("went back in time"));
    eventually("an event tells operators", || {
        let current = cluster.replica(c).current();
        current.state.events().iter().any(|event| event.reason() == "ReplicaWentBack")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_28_a_replica_that_did_not_hear_the_promise_itself_remembers_it_across_a_power_loss() {
    for seed in 0..4 {
        let mut cluster = Cluster::start(&IDS).await;
        let (a, b) = (cluster.leader(), ReplicaId(1 + cluster.leader().0 % 3));
        let c = *IDS.iter().find(|id| **id != a && **id != b).unwrap();
        cluster.crash(b).await;
        let older = copy_of(&cluster.disks[&b]);
        cluster.boot(b).await;
        cluster.settle().await;
        assert!(done(&cluster.create(a, "x", PATIENCE).await));
        let promised = cluster.replica(b).mark().promises;
        eventually("C has written down what B promised", || {
            cluster.replica(c).saved_mark(b).is_some_and(|mark| mark.promises >= promised)
        })
        .await;
        cluster.crash(a).await;
        cluster.power_loss(c, seed).await;
        cluster.boot(c).await;
        goes_back(&mut cluster, b, &older).await;
        eventually("B finds out", || trouble(&cluster, b) == Some(ReplicaTrouble::WentBack)).await;
        assert!(cluster.create(c, "without-a", Duration::from_secs(1)).await.is_err(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_28_a_replica_that_comes_back_with_its_own_data_is_not_mistaken() {
    let mut cluster = Cluster::start(&IDS).await;
    for round in 0..6 {
        let id = IDS[round % 3];
        assert!(done(&cluster.create(cluster.leader(), &format!("before-{round}"), PATIENCE).await));
        match round % 2 {
            0 => cluster.crash(id).await,
            _ => cluster.power_loss(id, round as u64).await,
        }
        cluster.boot(id).await;
        cluster.settle().await;
        assert!(IDS.iter().all(|id| trouble(&cluster, *id).is_none() && cluster.replica(*id).distrusted().is_empty()));
    }
}

fn restored(names: &[&str]) -> State {
    let mut state = State::new();
    for (at, name) in names.iter().enumerate() {
        let index = at as u64 + 1;
        let command = crate::harness::create(name);
        let stamp = muster_lifecycle::time::Stamp {
            cluster: muster_lifecycle::time::ClusterTime(index),
            wall: muster_lifecycle::time::WallTime(1),
        };
        state.apply(Position { term: 1, index }, &muster_lifecycle::command::Batch { stamp, commands: vec![command] });
    }
    state.raise_revision(1_000, 1);
    state
}

fn restore(cluster: &Cluster, id: ReplicaId, state: &State, members: &[ReplicaId]) {
    let members: BTreeMap<ReplicaId, Endpoint> = members.iter().map(|id| (*id, endpoint(*id))).collect();
    let identity = StoreOwner { replica: id, fleet: Uid(7) };
    let restoration = Restoration { identity, store: Uid(rand::random()), state, members };
    ReplicaStore::restore(&cluster.disks[&id].mount(), &restoration, std::sync::Arc::new(RecordAbort::default()))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn i_17_two_replicas_that_differ_do_not_lead_until_a_third_settles_it() {
    let mut cluster = Cluster::prepare(&IDS);
    // These replicas differ on purpose.
    cluster.consensus.turn_off();
    let (right, wrong) = (restored(&["a"]), restored(&["a", "b"]));
    restore(&cluster, ReplicaId(1), &right, &IDS);
    restore(&cluster, ReplicaId(2), &wrong, &IDS);
    restore(&cluster, ReplicaId(3), &right, &IDS);
    cluster.boot(ReplicaId(1)).await;
    cluster.boot(ReplicaId(2)).await;
    for id in [1, 2] {
        let disputed = || trouble(&cluster, ReplicaId(id)) == Some(ReplicaTrouble::Disputed);
        eventually("both say that they differ", disputed).await;
        let text = cluster.replica(ReplicaId(id)).standing().trouble().unwrap().1;
        assert!(text.contains("replicas 1 and 2 differ at log index 1"), "{text}");
        assert_eq!(cluster.replica(ReplicaId(id)).standing().mismatches().len(), 1);
    }
    assert!(cluster.create(ReplicaId(1), "undecided", SHORT).await.is_err());
    cluster.boot(ReplicaId(3)).await;
    eventually("the majority excludes replica 2", || trouble(&cluster, ReplicaId(2)) == Some(ReplicaTrouble::Diverged))
        .await;
    assert!(done(&cluster.create(ReplicaId(1), "decided", PATIENCE).await));
    assert_eq!((trouble(&cluster, ReplicaId(1)), trouble(&cluster, ReplicaId(3))), (None, None));
    assert!(cluster.replica(ReplicaId(2)).current().state.node("decided").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn i_17_three_different_restores_never_lead() {
    let mut cluster = Cluster::prepare(&IDS);
    // These replicas differ on purpose.
    cluster.consensus.turn_off();
    for (id, names) in IDS.into_iter().zip([&["a"][..], &["b"], &["c"]]) {
        restore(&cluster, id, &restored(names), &IDS);
        cluster.boot(id).await;
    }
    for id in IDS {
        eventually("each says so", || trouble(&cluster, id) == Some(ReplicaTrouble::Disputed)).await;
    }
    assert!(cluster.create(ReplicaId(1), "undecided", SHORT).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn i_15_replicas_restored_with_different_members_do_not_form_a_cluster() {
    let mut cluster = Cluster::prepare(&IDS);
    let state = restored(&["a"]);
    restore(&cluster, ReplicaId(1), &state, &IDS);
    restore(&cluster, ReplicaId(2), &state, &[ReplicaId(1), ReplicaId(2)]);
    for id in [ReplicaId(1), ReplicaId(2)] {
        cluster.boot(id).await;
    }
    for id in [ReplicaId(1), ReplicaId(2)] {
        eventually("both say so", || trouble(&cluster, id) == Some(ReplicaTrouble::Disputed)).await;
        let text = cluster.replica(id).standing().trouble().unwrap().1;
        assert!(text.contains("different `initial_members`"), "{text}");
    }
    restore(&cluster, ReplicaId(3), &state, &IDS);
    cluster.boot(ReplicaId(3)).await;
    assert!(done(&cluster.create(ReplicaId(1), "by-the-majority", PATIENCE).await));
    assert!(cluster.replica(ReplicaId(2)).current().state.node("by-the-majority").is_none());
}

fn panics_on_poison(state: &mut State, position: Position, batch: &EncodedBatch) -> Applied {
    let poisoned = format!("{:?}", batch.commands).contains("poison");
    assert!(!poisoned, "this entry is poison");
    state.apply(position, batch)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_apply_halts_the_replica_with_a_dump_and_is_not_tried_again() {
    let mut cluster = Cluster::start(&IDS).await;
    let victim = cluster.leader();
    let other = ReplicaId(1 + victim.0 % 3);
    cluster.crash(victim).await;
    cluster.apply = Some(panics_on_poison);
    cluster.boot(victim).await;
    cluster.apply = None;
    cluster.settle().await;
    assert!(done(&cluster.create(other, "poison", PATIENCE).await));
    eventually("the replica halts", || trouble(&cluster, victim) == Some(ReplicaTrouble::Halted)).await;
    let text = cluster.replica(victim).standing().exclusion().unwrap().to_string();
    assert!(text.contains("this entry is poison") && text.contains(HALT_FILE), "{text}");
    assert!(cluster.replica(victim).current().state.node("poison").is_none(), "nothing half done is published");
    let dump = cluster.disks[&victim].content(HALT_FILE).unwrap();
    assert!(dump.windows(6).any(|bytes| bytes == b"poison"), "the dump holds the entry");
    assert!(done(&cluster.create(other, "goes-on", PATIENCE).await));
    // A start by the same release does not try again, although this one would not panic.
    cluster.crash(victim).await;
    cluster.boot(victim).await;
    eventually("it is still halted", || trouble(&cluster, victim) == Some(ReplicaTrouble::Halted)).await;
    assert!(cluster.replica(victim).current().state.node("poison").is_none());
    eventually("the others tell operators", || {
        let current = cluster.replica(other).current();
        current.state.events().iter().any(|event| event.reason() == "ReplicaHalted")
    })
    .await;
    // An operator removes the dump.
    cluster.crash(victim).await;
    cluster.disks[&victim].mount().remove(HALT_FILE).unwrap();
    cluster.boot(victim).await;
    eventually("it catches up", || cluster.replica(victim).current().state.node("goes-on").is_some()).await;
    assert_eq!(trouble(&cluster, victim), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_every_replica_panics_on_stops_the_cluster_without_a_crash_loop() {
    let mut cluster = Cluster::prepare(&IDS);
    cluster.apply = Some(panics_on_poison);
    for id in IDS {
        cluster.boot(id).await;
    }
    cluster.settle().await;
    let outcome = cluster.create(cluster.leader(), "poison", SHORT).await;
    assert!(outcome.is_err(), "{outcome:?}");
    // The third may never learn that the entry was committed: two that halted leave it without a quorum.
    let halted =
        |cluster: &Cluster| IDS.into_iter().filter(|id| trouble(cluster, *id) == Some(ReplicaTrouble::Halted)).count();
    eventually("a majority halts", || halted(&cluster) >= 2).await;
    assert!(cluster.create(ReplicaId(1), "later", SHORT).await.is_err());
    assert!(cluster.running.values().all(|running| running.abort.reasons().is_empty()));
}
