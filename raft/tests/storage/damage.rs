//! Tests of I-19 and F-26: damage is detected, never served.

use std::sync::LazyLock;

use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::disk::sim::SimDisk;
use muster_raft::log_store::{LOG_FILE, LogOpenError, LogStore, StoreOwner};
use muster_raft::persisted::log_id;
use muster_raft::store::ReplicaStoreError;
use openraft::storage::{RaftLogReader, RaftLogStorage};
use proptest::prelude::*;

use crate::fixture::{self, BIRTH, IDENTITY, entries, open_sim, recorder};

type Files = Vec<(String, Vec<u8>)>;

/// The end of the process that wrote the log.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Orderly,
    Killed,
}

/// The files of a log with some history and a vote.
async fn filled(ended: Ended) -> Files {
    let sim = SimDisk::new();
    let mut store = open_sim(&sim);
    for start in (0..400).step_by(40) {
        store.append(entries(1, start..start + 40)).await.unwrap();
    }
    store.log.truncate_after(Some(log_id(1, 379))).await.unwrap();
    store.vote(5).await.unwrap();
    match ended {
        Ended::Orderly => store.close().await,
        Ended::Killed => sim.kill(),
    }
    sim.names().into_iter().map(|name| (name.clone(), sim.content(&name).unwrap())).collect()
}

fn log_bytes(files: &[(String, Vec<u8>)]) -> &[u8] {
    &files.iter().find(|(name, _)| name == LOG_FILE).unwrap().1
}

/// Asserts that the store is refused, or holds exactly what was written. Returns whether it was refused.
async fn assert_refused_or_unharmed(sim: &SimDisk, what: &str) -> bool {
    match fixture::open(sim.mount(), None) {
        Err(ReplicaStoreError::Log(error @ (LogOpenError::Damaged { .. } | LogOpenError::NewerVersion { .. }))) => {
            assert!(error.to_string().contains("muster member") || error.to_string().contains("release"), "{error}");
            true
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(mut store) => {
            assert_eq!(store.entries().await, entries(1, 0..380), "{what}");
            assert_eq!(store.log.read_vote().await.unwrap().unwrap().leader_id.term, 5, "{what}");
            store.close().await;
            false
        }
    }
}

#[test]
fn f_26_every_byte_of_the_header_may_be_damaged_and_nothing_wrong_is_served() {
    fixture::run(async {
        for ended in [Ended::Orderly, Ended::Killed] {
            let intact = filled(ended).await;
            for bit in 0..320 * 8 {
                let sim = with_files(&intact);
                sim.flip_bit(LOG_FILE, bit);
                assert_refused_or_unharmed(&sim, &format!("bit {bit} of the header, {ended:?}")).await;
            }
        }
    });
}

#[test]
fn f_26_a_truncated_log_is_refused() {
    fixture::run(async {
        let intact = filled(Ended::Orderly).await;
        let full = log_bytes(&intact).len();
        for length in [0, 1, 63, 320, 4_095, 4_096, 8_192, full / 2, full - 4_096, full - 1] {
            let sim = with_files(&intact);
            sim.corrupt(LOG_FILE, |content| content.truncate(length));
            assert!(assert_refused_or_unharmed(&sim, &format!("cut to {length}")).await, "cut to {length} bytes");
        }
    });
}

#[test]
fn f_26_damaged_entries_and_votes_are_always_refused() {
    fixture::run(async {
        let intact = filled(Ended::Orderly).await;
        let needle = b"node-1-200";
        let log = log_bytes(&intact);
        let places: Vec<_> = (0..log.len() - needle.len()).filter(|at| log[*at..].starts_with(needle)).collect();
        assert!(!places.is_empty());
        let sim = with_files(&intact);
        for at in places {
            sim.flip_bit(LOG_FILE, at * 8);
        }
        assert!(assert_refused_or_unharmed(&sim, "entry 200").await);
    });
}

/// Made once: every case of the property damages a copy.
static INTACT: LazyLock<[Files; 2]> =
    LazyLock::new(|| [Ended::Orderly, Ended::Killed].map(|ended| fixture::run(filled(ended))));

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn f_26_any_flipped_bit_of_the_log_is_refused_or_harmless(bit: prop::sample::Index, killed: bool) {
        let intact = &INTACT[usize::from(killed)];
        let sim = with_files(intact);
        let bit = bit.index(log_bytes(intact).len() * 8);
        sim.flip_bit(LOG_FILE, bit);
        fixture::run(assert_refused_or_unharmed(&sim, &format!("bit {bit}")));
    }
}

#[test]
fn f_28_an_older_copy_of_the_log_is_refused() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..3)).await.unwrap();
        store.close().await;
        let older = sim.content(LOG_FILE).unwrap();
        let mut store = open_sim(&sim);
        store.vote(7).await.unwrap();
        store.close().await;
        sim.corrupt(LOG_FILE, |content| *content = older);
        let error = fixture::open(sim.mount(), None).err().unwrap().to_string();
        assert!(error.contains("transactions were acknowledged"), "{error}");
    });
}

#[test]
fn f_28_a_log_whose_witness_is_lost_or_damaged_is_refused() {
    fixture::run(async {
        let intact = filled(Ended::Killed).await;
        for damage in [
            |sim: &SimDisk| drop(sim.mount().remove("log.witness")),
            |sim: &SimDisk| {
                sim.flip_bit("log.witness", 50);
            },
        ] {
            let sim = with_files(&intact);
            damage(&sim);
            assert!(assert_refused_or_unharmed(&sim, "witness").await);
            let error = fixture::open(sim.mount(), None).err().unwrap().to_string();
            assert!(error.contains("its witness, the file log.witness, is missing or unreadable"), "{error}");
        }
    });
}

fn with_files(files: &[(String, Vec<u8>)]) -> SimDisk {
    let sim = SimDisk::new();
    let disk = sim.mount();
    for (name, content) in files {
        let file = disk.create(name).unwrap();
        file.write_at(0, content).unwrap();
        file.sync().unwrap();
    }
    disk.sync_dir().unwrap();
    sim
}

#[test]
fn a_missing_log_is_refused_with_advice() {
    let sim = SimDisk::new();
    let error = LogStore::open(sim.mount(), &IDENTITY, recorder()).err().unwrap();
    assert!(matches!(error, LogOpenError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("muster member remove 1"), "{error}");
    assert!(sim.names().is_empty());
}

#[test]
fn a_log_that_was_deleted_beside_its_snapshot_is_not_replaced_by_an_empty_one() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..3)).await.unwrap();
        store.apply_up_to(2).await.unwrap();
        store.snapshot().await.unwrap();
        store.close().await;
        sim.mount().remove(LOG_FILE).unwrap();
        let error = fixture::open(sim.mount(), None).err().unwrap();
        assert!(matches!(error, ReplicaStoreError::Log(LogOpenError::Damaged { .. })), "{error}");
    });
}

#[test]
fn f_28_the_data_of_another_replica_or_fleet_is_refused() {
    fixture::run(async {
        let sim = SimDisk::new();
        open_sim(&sim).close().await;
        let open = |identity: StoreOwner| LogStore::open(sim.mount(), &identity, recorder()).err().unwrap().to_string();
        let error = open(StoreOwner { replica: ReplicaId(2), ..IDENTITY });
        assert!(error.contains("belongs to replica 1, this is replica 2"), "{error}");
        let error = open(StoreOwner { fleet: Uid(9), ..IDENTITY });
        assert!(error.contains("check the data directory"), "{error}");
        let again = LogStore::open_or_create(sim.mount(), &IDENTITY, &BIRTH, recorder()).unwrap();
        assert_eq!(again.new_store(), BIRTH);
    });
}
