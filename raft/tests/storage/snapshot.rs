//! Tests of snapshots: whole, verified and durable, or not there.

use muster_raft::disk::sim::SimDisk;
use muster_raft::persisted::log_id;
use muster_raft::snapshot_store::{SnapshotError, SnapshotFile, SnapshotHeader, read_snapshot, write_snapshot};
use muster_raft::store::ReplicaStoreError;
use muster_raft::types::StoredMembership;
use openraft::storage::{RaftLogStorage, RaftStateMachine};

use crate::fixture::{self, FLEET, Opened, entries, open_sim, state_after};

const NAME: &str = "snapshot-1-9.snap";

/// A store with ten entries applied and a snapshot of them.
async fn with_snapshot(sim: &SimDisk) -> (Opened, SnapshotFile) {
    let mut store = open_sim(sim);
    store.append(entries(1, 0..12)).await.unwrap();
    store.apply_up_to(9).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    (store, snapshot)
}

#[test]
fn a_snapshot_survives_power_loss_and_restores_the_state() {
    fixture::run(async {
        for seed in 0..16 {
            let sim = SimDisk::new();
            let (mut store, snapshot) = with_snapshot(&sim).await;
            store.log.purge(log_id(1, 9)).await.unwrap();
            store.vote(2).await.unwrap();
            sim.power_loss(seed);
            let mut store = open_sim(&sim);
            assert_eq!(store.log.purged(), Some(log_id(1, 9)));
            assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 9)));
            assert_eq!(store.machine.state().digest().0, snapshot.header().digest);
            assert_eq!(store.published.told().resets, 1);
            assert!(store.info.initialized);
        }
    });
}

#[test]
fn a_newer_snapshot_replaces_the_older_one_whose_readers_continue() {
    fixture::run(async {
        let sim = SimDisk::new();
        let (mut store, old) = with_snapshot(&sim).await;
        let reading = old.chunks();
        store.apply_up_to(11).await.unwrap();
        store.snapshot().await.unwrap();
        assert_eq!(sim.names(), ["log.redb", "log.witness", "snapshot-1-11.snap"]);
        let bytes: Vec<u8> = reading.flat_map(|chunk| chunk.unwrap()).collect();
        assert_eq!(bytes.len() as u64, old.len());
        assert_eq!(read_snapshot(bytes.as_slice()).unwrap().0, *old.header());
    });
}

#[test]
fn a_snapshot_travels_in_pieces_and_is_installed_durably() {
    fixture::run(async {
        let (leader, follower) = (SimDisk::new(), SimDisk::new());
        let (store, sent) = with_snapshot(&leader).await;
        let mut behind = open_sim(&follower);
        let mut receiver = behind.machine.snapshots().receive().unwrap();
        for chunk in sent.chunks() {
            receiver.write(&chunk.unwrap()).unwrap();
        }
        let received = receiver.finish().unwrap();
        let meta = received.header().meta().unwrap();
        behind.machine.install_snapshot(&meta, received).await.unwrap();
        assert_eq!(behind.machine.state().digest(), store.machine.state().digest());
        assert_eq!(behind.published.told().resets, 2);
        follower.power_loss(3);
        let mut behind = open_sim(&follower);
        assert_eq!(behind.machine.applied_state().await.unwrap().0, Some(log_id(1, 9)));
    });
}

#[test]
fn a_snapshot_that_arrives_damaged_or_incomplete_is_refused_and_leaves_nothing() {
    fixture::run(async {
        let sim = SimDisk::new();
        let (store, sent) = with_snapshot(&sim).await;
        let content: Vec<u8> = sent.chunks().flat_map(|chunk| chunk.unwrap()).collect();
        let mut flipped = content.clone();
        flipped[content.len() / 2] ^= 1;
        for bad in [&flipped[..], &content[..content.len() - 1], b"", b"something else entirely"] {
            let mut receiver = store.machine.snapshots().receive().unwrap();
            receiver.write(bad).unwrap();
            let error = receiver.finish().unwrap_err();
            assert!(matches!(error, SnapshotError::Damaged { .. } | SnapshotError::NotASnapshot), "{error}");
            assert_eq!(sim.names(), ["log.redb", "log.witness", NAME]);
        }
        assert_eq!(store.abort.reasons().len(), 0);
    });
}

#[test]
fn a_snapshot_of_another_fleet_is_refused() {
    fixture::run(async {
        let sim = SimDisk::new();
        let store = open_sim(&sim);
        let state = state_after(&entries(1, 0..5));
        let header = SnapshotHeader::new(&state, FLEET.0 + 1, Some(log_id(1, 4)), &StoredMembership::default());
        let mut foreign = Vec::new();
        write_snapshot(&mut foreign, &header, &state).unwrap();
        let mut receiver = store.machine.snapshots().receive().unwrap();
        receiver.write(&foreign).unwrap();
        assert!(matches!(receiver.finish(), Err(SnapshotError::OtherFleet { .. })));
    });
}

#[test]
fn transfers_are_bounded() {
    let sim = SimDisk::new();
    let store = open_sim(&sim);
    let snapshots = store.machine.snapshots();
    let _first = snapshots.receive().unwrap();
    let second = snapshots.receive().unwrap();
    assert!(matches!(snapshots.receive(), Err(SnapshotError::Busy)));
    drop(second);
    snapshots.receive().unwrap();
}

#[test]
fn unfinished_snapshots_are_removed_at_start() {
    fixture::run(async {
        let sim = SimDisk::new();
        open_sim(&sim).close().await;
        sim.mount().create("snapshot-7.tmp").unwrap();
        open_sim(&sim);
        assert_eq!(sim.names(), ["log.redb", "log.witness"]);
    });
}

#[test]
fn f_26_a_damaged_snapshot_is_not_used_and_the_log_is_replayed_if_it_reaches_back() {
    fixture::run(async {
        let sim = SimDisk::new();
        let (store, _) = with_snapshot(&sim).await;
        store.close().await;
        sim.flip_bit(NAME, 900);
        let mut store = open_sim(&sim);
        assert_eq!(store.machine.applied_state().await.unwrap().0, None);
        store.apply_up_to(11).await.unwrap();
        assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..12)).digest());
    });
}

#[test]
fn f_26_a_damaged_snapshot_that_the_log_needs_stops_the_replica_with_advice() {
    fixture::run(async {
        let sim = SimDisk::new();
        let (mut store, _) = with_snapshot(&sim).await;
        store.log.purge(log_id(1, 9)).await.unwrap();
        store.close().await;
        sim.flip_bit(NAME, 900);
        let error = fixture::open(sim.mount(), None).err().unwrap();
        assert!(matches!(error, ReplicaStoreError::NoBase { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(NAME) && text.contains("muster member remove 1"), "{text}");
    });
}

#[test]
fn f_26_every_flipped_bit_and_every_truncation_of_a_snapshot_is_detected() {
    let state = state_after(&entries(1, 0..4));
    let header = SnapshotHeader::new(&state, FLEET.0, Some(log_id(1, 3)), &StoredMembership::default());
    let mut file = Vec::new();
    write_snapshot(&mut file, &header, &state).unwrap();
    let (found, restored) = read_snapshot(file.as_slice()).unwrap();
    assert_eq!((found, restored.digest()), (header, state.digest()));
    for bit in 0..file.len() * 8 {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(read_snapshot(file.as_slice()).is_err(), "bit {bit}");
        file[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..file.len() {
        assert!(read_snapshot(&file[..length]).is_err(), "cut to {length}");
    }
    file.push(0);
    assert!(read_snapshot(file.as_slice()).is_err(), "one byte too many");
}

#[test]
fn an_implausible_length_is_refused_before_it_is_allocated() {
    let mut file = b"MUSTERSN\x02\0\0\0".to_vec();
    file.extend_from_slice(&u32::MAX.to_le_bytes());
    file.extend_from_slice(&[0; 64]);
    let error = read_snapshot(file.as_slice()).unwrap_err();
    assert!(error.to_string().contains("claims 4294967295 bytes"), "{error}");
}

#[test]
fn a_snapshot_by_a_newer_release_is_named_as_such() {
    let file = b"MUSTERSN\x03\0\0\0".to_vec();
    let error = read_snapshot(file.as_slice()).unwrap_err();
    assert!(error.to_string().contains("format 3, this build reads format 2"), "{error}");
}
