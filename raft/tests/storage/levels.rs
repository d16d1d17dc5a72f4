//! I-25: data of a level that a build does not speak is refused in one sentence, and stays as it is.

use muster_lifecycle::command::{Batch, Command, LeaderOperation, Origin, ReplicaOperation};
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord};
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_raft::disk::sim::SimDisk;
use muster_raft::encoded::EncodedBatch;
use muster_raft::level_guard::Build;
use muster_raft::persisted::log_id;
use muster_raft::snapshot_store::{SnapshotHeader, read_snapshot, write_snapshot};
use muster_raft::types::{LogEntry, StoredMembership};
use openraft::EntryPayload;

use crate::fixture::{BUILD, batch, entry, open_as, run, state_after};

const NEXT: Build = Build { version: "0.2.0", levels: LevelRange::new(Level(1), Level(2)) };
const REFUSED: &str = "the cluster is at level 2, which version 0.2.0 raised; this is version 0.1.0, which speaks levels \
                       1 to 1: run version 0.2.0; nothing was changed";

fn at(level: u32, index: u64, batch: Batch) -> LogEntry {
    let payload = EntryPayload::Normal(EncodedBatch::new(Level(level), batch).unwrap());
    LogEntry { log_id: log_id(1, index), payload }
}

/// The replica announces both levels and then raises to the second.
fn raise(index: u64) -> LogEntry {
    let replica = ReplicaRecord::new(ReplicaId(1), Uid(1), "0.2.0".into(), NEXT.levels);
    let announce = ReplicaOperation::AnnounceReplica { replica };
    let announce = Command { origin: Origin::Replica { id: ReplicaId(1) }, request: None, operation: announce.into() };
    let raise = LeaderOperation::RaiseLevel { to: Level(2), version: NEXT.version.into() };
    let raise = Command { origin: Origin::Controller { term: 1 }, request: None, operation: raise.into() };
    let stamp = Stamp { cluster: ClusterTime(index), wall: WallTime(1_700_000_000_000) };
    at(1, index, Batch { stamp, commands: vec![announce, raise] })
}

/// Every file of the disk with its content.
fn content(sim: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let disk = sim.mount();
    let mut names = disk.list().unwrap();
    names.sort();
    let read = |name: &String| {
        let file = disk.open(name).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn i_25_an_older_build_refuses_data_of_a_higher_level_and_changes_nothing() {
    run(async {
        for (entries, snapshot) in [(3, true), (4, false), (4, true)] {
            let sim = SimDisk::default();
            let mut store = open_as(sim.mount(), None, NEXT).unwrap();
            let all = [entry(1, 0), entry(1, 1), raise(2), at(2, 3, batch(1, 3))];
            store.append(all[..entries].to_vec()).await.unwrap();
            store.apply_up_to(entries as u64 - 1).await.unwrap();
            assert_eq!(store.machine.state().level(), Level(2));
            let digest = store.machine.state().digest();
            if snapshot {
                store.snapshot().await.unwrap();
            }
            store.close().await;
            let snapshots = |files: Vec<(String, Vec<u8>)>| -> Vec<_> {
                files.into_iter().filter(|(name, _)| name.ends_with(".snap")).collect()
            };
            let before = snapshots(content(&sim));
            let refused = open_as(sim.mount(), None, BUILD).err().unwrap().to_string();
            assert_eq!(refused, REFUSED, "{entries} entries, snapshot: {snapshot}");
            assert_eq!(snapshots(content(&sim)), before);
            let mut again = open_as(sim.mount(), None, NEXT).unwrap();
            again.apply_up_to(entries as u64 - 1).await.unwrap();
            assert_eq!(again.machine.state().digest(), digest);
            again.close().await;
        }
    });
}

#[test]
fn i_25_a_replica_halts_at_the_raise_that_it_does_not_speak() {
    run(async {
        let sim = SimDisk::default();
        let mut store = open_as(sim.mount(), None, BUILD).unwrap();
        store.append(vec![entry(1, 0), entry(1, 1), raise(2), entry(1, 3)]).await.unwrap();
        store.apply_up_to(1).await.unwrap();
        assert_eq!(store.apply_up_to(3).await.unwrap_err().to_string(), REFUSED);
        assert_eq!(store.published.told().applied, Some(log_id(1, 1)), "nothing of the higher level is published");
        assert_eq!(store.machine.guard().halted().await.to_string(), REFUSED);
        store.close().await;
        let mut next = open_as(sim.mount(), None, NEXT).unwrap();
        next.apply_up_to(3).await.unwrap();
        assert_eq!(next.machine.state().level(), Level(2));
    });
}

#[test]
fn i_25_data_of_an_unknown_level_is_refused_and_not_moved_aside() {
    let state = state_after(&[entry(1, 1)]);
    let mut header = SnapshotHeader::new(&state, 0xf1ee7, Some(log_id(1, 1)), &StoredMembership::default());
    header.level = Level(Level::NEWEST.0 + 1);
    header.raised_by = "9.0.0".into();
    let mut file = Vec::new();
    write_snapshot(&mut file, &header, &state).unwrap();
    let refused = read_snapshot(file.as_slice()).unwrap_err().to_string();
    assert!(refused.contains("which version 9.0.0 raised") && refused.ends_with("run version 9.0.0"), "{refused}");
}
