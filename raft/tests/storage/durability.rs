//! Tests of I-08, I-18, F-20 to F-25: an acknowledged write is durable.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use muster_lifecycle::command::Batch;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::disk::sim::SimDisk;
use muster_raft::log_store::{LogStore, RESERVE_BYTES};
use muster_raft::persisted::log_id;
use muster_raft::types::{LogEntry, LogId, TypeConfig, Vote};
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage, RaftStateMachine};
use openraft::type_config::TypeConfigExt;
use proptest::prelude::*;

use crate::fixture::{self, IDENTITY, Opened, REPLICA, entries, entry, open_sim, recorder};

/// Long enough to notice an acknowledgement that should not come.
const UNSYNCED: Duration = Duration::from_millis(50);

#[test]
fn i_18_a_withheld_sync_acknowledges_nothing_and_its_entries_are_readable() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        sim.withhold_sync(true);
        let (flushed, mut acknowledged) = TypeConfig::oneshot();
        store.log.append(entries(1, 0..3), IOFlushed::signal(flushed)).await.unwrap();
        assert_eq!(store.entries().await, entries(1, 0..3), "visible at once");
        assert_eq!(store.log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 2)));
        while sim.waiting_syncs() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(UNSYNCED, &mut acknowledged).await.unwrap_err();
        let mut voter = store.log.clone();
        let vote = Vote::new(2, ReplicaId(REPLICA));
        let voting = voter.save_vote(&vote);
        tokio::pin!(voting);
        tokio::time::timeout(UNSYNCED, &mut voting).await.unwrap_err();
        sim.withhold_sync(false);
        acknowledged.await.unwrap().unwrap();
        voting.await.unwrap();
    });
}

#[test]
fn i_18_what_was_not_synced_is_lost_with_the_power_and_was_not_acknowledged() {
    fixture::run(async {
        for seed in 0..32 {
            let sim = SimDisk::new();
            let mut store = open_sim(&sim);
            store.append(entries(1, 0..3)).await.unwrap();
            sim.withhold_sync(true);
            let (flushed, acknowledged) = TypeConfig::oneshot();
            store.log.append(entries(1, 3..6), IOFlushed::signal(flushed)).await.unwrap();
            while sim.waiting_syncs() == 0 {
                tokio::task::yield_now().await;
            }
            sim.power_loss(seed);
            assert!(acknowledged.await.unwrap().is_err(), "not acknowledged");
            assert_eq!(store.abort.reasons().len(), 1);
            let found = open_sim(&sim).entries().await;
            assert!(found == entries(1, 0..3) || found == entries(1, 0..6), "all of a batch or nothing: {found:?}");
        }
    });
}

/// The baselines: on a disk whose syncs do nothing the promises are broken, and the checks notice. So it is the syncs
/// that keep them.
#[test]
fn i_18_without_file_syncs_acknowledged_entries_would_be_lost() {
    fixture::run(async {
        let mut lost = 0;
        for seed in 0..32 {
            let sim = SimDisk::new();
            let mut store = open_sim(&sim);
            sim.ignore_file_syncs(true);
            store.append(entries(1, 0..3)).await.unwrap();
            sim.power_loss(seed);
            let kept = match fixture::open(sim.mount(), None) {
                Ok(mut store) => store.entries().await == entries(1, 0..3),
                Err(_) => false,
            };
            lost += usize::from(!kept);
        }
        assert!(lost > 8, "only {lost} of 32 power cuts were noticed");
    });
}

#[test]
fn i_18_without_directory_syncs_a_purged_log_would_lose_its_snapshot() {
    fixture::run(async {
        let mut lost = 0;
        for seed in 0..32 {
            let sim = SimDisk::new();
            let mut store = open_sim(&sim);
            store.append(entries(1, 0..3)).await.unwrap();
            store.apply_up_to(2).await.unwrap();
            sim.ignore_dir_syncs(true);
            store.snapshot().await.unwrap();
            store.log.purge(log_id(1, 2)).await.unwrap();
            store.vote(1).await.unwrap();
            sim.power_loss(seed);
            lost += usize::from(fixture::open(sim.mount(), None).is_err());
        }
        assert!(lost > 4, "only {lost} of 32 power cuts were noticed");
    });
}

#[test]
fn f_21_a_failed_sync_aborts_and_nothing_is_acknowledged_afterwards() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..3)).await.unwrap();
        sim.fail_syncs_after(0);
        store.append(entries(1, 3..4)).await.unwrap_err();
        let reasons = store.abort.reasons();
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].contains("the disk failed") && reasons[0].contains("other replicas go on"), "{reasons:?}");
        store.append(entries(1, 4..5)).await.unwrap_err();
        store.vote(7).await.unwrap_err();
        store.log.purge(log_id(1, 1)).await.unwrap_err();
        assert_eq!(store.abort.reasons().len(), 1, "one abort is enough");
    });
}

#[test]
fn f_21_a_failed_sync_of_a_snapshot_aborts() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..3)).await.unwrap();
        store.apply_up_to(2).await.unwrap();
        sim.fail_syncs_after(0);
        store.snapshot().await.unwrap_err();
        assert_eq!(store.abort.reasons().len(), 1);
    });
}

#[test]
fn f_23_a_nearly_full_disk_refuses_proposals_and_snapshots_and_recovers_by_itself() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        let capacity = store.log.capacity();
        capacity.check().unwrap();
        sim.set_capacity(Some(RESERVE_BYTES));
        let full = capacity.check().unwrap_err();
        assert!(full.to_string().contains("writes resume by themselves"), "{full}");
        store.append(entries(1, 0..3)).await.unwrap();
        sim.set_capacity(Some(RESERVE_BYTES / 4));
        assert!(store.machine.try_create_snapshot_builder(false).await.is_none());
        sim.set_capacity(None);
        capacity.check().unwrap();
        assert!(store.machine.try_create_snapshot_builder(false).await.is_some());
    });
}

#[test]
fn f_23_a_disk_that_runs_full_under_a_write_says_so_and_loses_nothing() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        sim.set_capacity(Some(sim.content("log.redb").unwrap().len() as u64));
        let mut acknowledged = 0;
        while store.append(entries(1, acknowledged..acknowledged + 64)).await.is_ok() {
            acknowledged += 64;
        }
        let reasons = store.abort.reasons();
        assert!(reasons[0].contains("the disk is full: free some space"), "{reasons:?}");
        sim.kill();
        sim.set_capacity(None);
        assert_eq!(open_sim(&sim).entries().await.len() as u64 / 64 * 64, acknowledged);
    });
}

#[test]
fn saving_the_committed_position_costs_no_sync_and_survives_an_orderly_close() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..5)).await.unwrap();
        let before = sim.syncs();
        for index in 0..5 {
            store.log.save_committed(Some(log_id(1, index))).await.unwrap();
        }
        assert_eq!(store.log.read_committed().await.unwrap(), Some(log_id(1, 4)));
        assert_eq!(sim.syncs(), before);
        store.close().await;
        let mut store = open_sim(&sim);
        assert_eq!(store.log.read_committed().await.unwrap(), Some(log_id(1, 4)));
    });
}

#[test]
fn a_committed_position_beyond_the_durable_entries_is_not_written() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..5)).await.unwrap();
        store.log.save_committed(Some(log_id(1, 9))).await.unwrap();
        store.vote(3).await.unwrap();
        sim.power_loss(1);
        assert_eq!(open_sim(&sim).log.read_committed().await.unwrap(), None);
    });
}

#[test]
fn appends_that_wait_together_share_their_syncs() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..1)).await.unwrap();
        sim.withhold_sync(true);
        let mut waiting = Vec::new();
        for index in 1..64 {
            let (flushed, acknowledged) = TypeConfig::oneshot();
            store.log.append([entry(1, index)], IOFlushed::signal(flushed)).await.unwrap();
            waiting.push(acknowledged);
        }
        let before = sim.syncs();
        sim.withhold_sync(false);
        for acknowledged in waiting {
            acknowledged.await.unwrap().unwrap();
        }
        assert!(sim.syncs() - before <= 8, "{} syncs for 63 appends", sim.syncs() - before);
    });
}

#[test]
fn a_replication_message_is_bounded_in_bytes_and_never_empty() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        let big = |index| {
            let mut entry = entry(1, index);
            if let openraft::EntryPayload::Normal(sealed) = &mut entry.payload {
                let commands = vec![sealed.commands[0].clone(); 10_000];
                *sealed = fixture::sealed(Batch { stamp: sealed.stamp, commands });
            }
            entry
        };
        store.append((0..8).map(big).collect()).await.unwrap();
        let message = store.log.limited_get_log_entries(1, 8).await.unwrap();
        assert!(!message.is_empty() && message.len() < 7, "{} entries", message.len());
        assert_eq!(message[0].log_id, log_id(1, 1));
        store.close().await;
        let mut store = open_sim(&sim);
        assert_eq!(store.log.limited_get_log_entries(1, 8).await.unwrap().len(), message.len(), "from disk as well");
    });
}

#[test]
fn entries_are_read_from_memory_and_from_disk_alike() {
    fixture::run(async {
        let sim = SimDisk::new();
        let mut store = open_sim(&sim);
        store.append(entries(1, 0..6_000)).await.unwrap();
        assert_eq!(store.entries().await, entries(1, 0..6_000), "the cache holds fewer");
        store.log.truncate_after(Some(log_id(1, 999))).await.unwrap();
        store.append(entries(2, 1_000..1_010)).await.unwrap();
        let all: Vec<_> = entries(1, 0..1_000).into_iter().chain(entries(2, 1_000..1_010)).collect();
        assert_eq!(store.entries().await, all);
        store.log.purge(log_id(1, 499)).await.unwrap();
        assert_eq!(store.entries().await, all[500..]);
        store.close().await;
        let mut log = LogStore::open(sim.mount(), &IDENTITY, recorder()).unwrap();
        assert_eq!(log.try_get_log_entries(..).await.unwrap(), all[500..]);
    });
}

// === every prefix, every crash ===

#[derive(Debug, Clone)]
enum Step {
    Vote,
    Append(u64),
    Truncate(u64),
    Committed,
    Snapshot,
    /// Purges up to the last snapshot, as openraft does.
    Purge,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Vote),
        5 => (1..12_u64).prop_map(Step::Append),
        2 => (1..6_u64).prop_map(Step::Truncate),
        1 => Just(Step::Committed),
        2 => Just(Step::Snapshot),
        2 => Just(Step::Purge),
    ]
}

/// The promises so far: what has been acknowledged.
#[derive(Debug, Clone, Default)]
struct Promise {
    term: u64,
    vote: Option<Vote>,
    /// Everything ever appended and not truncated, purged or not.
    entries: BTreeMap<u64, LogEntry>,
    applied: Option<u64>,
    snapshot: Option<LogId>,
    purged: Option<LogId>,
}

impl Promise {
    fn next(&self) -> u64 {
        self.entries.keys().next_back().map_or(0, |last| last + 1)
    }

    /// The promises once the step is acknowledged.
    fn after(&self, step: &Step) -> Self {
        let mut after = self.clone();
        match step {
            Step::Vote => {
                after.term += 1;
                after.vote = Some(Vote::new(after.term, ReplicaId(REPLICA)));
            }
            Step::Append(count) => {
                let start = self.next();
                let added = entries(self.term, start..start + count);
                after.entries.extend(added.into_iter().map(|entry| (entry.log_id.index, entry)));
            }
            Step::Truncate(count) => {
                // Applied entries are committed; raft never truncates those.
                let keep = self.next().saturating_sub(*count).max(self.applied.map_or(0, |applied| applied + 1));
                after.entries.split_off(&keep);
                // A replica that truncates has seen a newer term.
                after.term += 1;
            }
            Step::Committed => {}
            Step::Snapshot => {
                after.applied = self.next().checked_sub(1);
                after.snapshot = after.applied.map(|index| self.entries[&index].log_id);
            }
            Step::Purge => after.purged = self.purged.max(self.snapshot),
        }
        after
    }

    /// Takes the step; `after` are the promises that it leads to.
    async fn execute(&self, step: &Step, after: &Self, store: &mut Opened) -> io::Result<()> {
        match step {
            Step::Vote => store.vote(after.term).await,
            Step::Append(_) => store.append(after.entries.range(self.next()..).map(|(_, e)| e.clone()).collect()).await,
            Step::Truncate(_) => {
                store.log.truncate_after(after.entries.values().next_back().map(|entry| entry.log_id)).await
            }
            Step::Committed => {
                let committed = self.applied.map(|index| self.entries[&index].log_id);
                store.log.save_committed(committed).await
            }
            Step::Snapshot => match after.applied {
                Some(applied) => {
                    store.apply_up_to(applied).await?;
                    store.snapshot().await.map(drop)
                }
                None => Ok(()),
            },
            Step::Purge => match after.purged {
                Some(purged) => store.log.purge(purged).await,
                None => Ok(()),
            },
        }
    }

    /// Whether a reopened store holds what was promised. A purge is not a promise: it may be undone.
    async fn is_kept_by(&self, store: &mut Opened) -> Result<(), String> {
        let state = store.log.get_log_state().await.unwrap();
        let vote = store.log.read_vote().await.unwrap();
        let found = store.entries().await;
        let first = state.last_purged_log_id.map_or(0, |id| id.index + 1);
        let expected: Vec<_> = self.entries.range(first..).map(|(_, entry)| entry.clone()).collect();
        if vote != self.vote {
            return Err(format!("vote {vote:?} instead of {:?}", self.vote));
        }
        if state.last_purged_log_id > self.purged {
            return Err(format!("purged {:?} instead of at most {:?}", state.last_purged_log_id, self.purged));
        }
        if found != expected {
            let ids = |entries: &[LogEntry]| entries.iter().map(|entry| entry.log_id.to_string()).collect::<Vec<_>>();
            return Err(format!("entries {:?} instead of {:?}", ids(&found), ids(&expected)));
        }
        let applied = store.machine.applied_state().await.unwrap().0;
        if applied < self.snapshot {
            return Err(format!("the state is at {applied:?}, before the snapshot at {:?}", self.snapshot));
        }
        if let Some(last) = self.next().checked_sub(1) {
            store.apply_up_to(last).await.unwrap();
        }
        let digest = store.machine.state().digest();
        if digest != fixture::state_after(self.entries.values()).digest() {
            return Err("the replayed state differs".to_owned());
        }
        Ok(())
    }
}

async fn check_reopened(sim: &SimDisk, promise: &Promise) -> Result<(), String> {
    let mut store = open_sim(sim);
    let kept = promise.is_kept_by(&mut store).await;
    store.close().await;
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn i_08_reopening_after_every_prefix_finds_exactly_what_was_acknowledged(
        steps in prop::collection::vec(step(), 1..14),
    ) {
        fixture::run(async {
            let sim = SimDisk::new();
            let mut promise = Promise::default();
            for step in &steps {
                let mut store = open_sim(&sim);
                if let Some(applied) = promise.applied {
                    store.apply_up_to(applied).await.unwrap();
                }
                let after = promise.after(step);
                promise.execute(step, &after, &mut store).await.unwrap();
                promise = after;
                store.close().await;
                let mut store = open_sim(&sim);
                prop_assert_eq!(store.log.get_log_state().await.unwrap().last_purged_log_id, promise.purged);
                prop_assert_eq!(promise.is_kept_by(&mut store).await, Ok(()));
                store.close().await;
            }
            Ok(())
        })?;
    }

    #[test]
    fn f_24_power_loss_between_any_two_steps_loses_nothing_acknowledged(
        steps in prop::collection::vec((step(), prop::bool::weighted(0.4)), 1..20),
        seed: u64,
    ) {
        fixture::run(async {
            let sim = SimDisk::new();
            let mut promise = Promise::default();
            let mut store = open_sim(&sim);
            for (number, (step, cut)) in steps.iter().enumerate() {
                let after = promise.after(step);
                promise.execute(step, &after, &mut store).await.unwrap();
                promise = after;
                if *cut {
                    sim.power_loss(seed.wrapping_add(number as u64));
                    store = open_sim(&sim);
                    prop_assert_eq!(promise.is_kept_by(&mut store).await, Ok(()));
                    promise.applied = promise.next().checked_sub(1);
                    promise.purged = store.log.purged();
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn f_20_f_25_a_machine_that_stops_within_a_step_keeps_everything_acknowledged_before(
        steps in prop::collection::vec(step(), 1..16),
        stop in 0..200_u64,
        seed: u64,
        power in prop::bool::weighted(0.7),
    ) {
        fixture::run(async {
            let sim = SimDisk::new();
            let mut promise = Promise::default();
            let mut store = open_sim(&sim);
            sim.halt_after(stop);
            let mut unfinished = None;
            for step in &steps {
                let after = promise.after(step);
                if promise.execute(step, &after, &mut store).await.is_err() {
                    unfinished = Some(after);
                    break;
                }
                promise = after;
            }
            if power { sim.power_loss(seed) } else { sim.kill() }
            let before = check_reopened(&sim, &promise).await;
            let after = match &unfinished {
                Some(after) => check_reopened(&sim, after).await,
                None => Err("no step was under way".to_owned()),
            };
            prop_assert!(before.is_ok() || after.is_ok(), "{before:?} and {after:?} after {unfinished:?}");
            Ok(())
        })?;
    }

    #[test]
    fn f_20_creation_that_is_cut_short_can_be_repeated(stop in 0..60_u64, seed: u64) {
        fixture::run(async {
            let sim = SimDisk::new();
            sim.halt_after(stop);
            let first = fixture::open(sim.mount(), None);
            drop(first);
            sim.power_loss(seed);
            let mut store = open_sim(&sim);
            store.append(entries(1, 0..2)).await.unwrap();
            assert_eq!(store.info.store_id, fixture::BIRTH.store);
        });
    }
}
