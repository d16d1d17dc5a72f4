//! Tests of the checkpoint: it saves replaying, and is believed only when it is right (F-27).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_lifecycle::meta::Uid;
use muster_raft::checkpoint::{AppliedState, Checkpoint};
use muster_raft::disk::sim::SimDisk;
use muster_raft::persisted::log_id;
use muster_raft::types::StoredMembership;
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use tempfile::TempDir;

use crate::fixture::{self, BIRTH, Opened, entries, state_after};

struct Machine {
    sim: SimDisk,
    dir: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { sim: SimDisk::new(), dir: tempfile::tempdir().unwrap() }
    }

    fn checkpoint(&self) -> PathBuf {
        self.dir.path().join("checkpoint")
    }

    fn open(&self) -> Opened {
        fixture::open(self.sim.mount(), Some(self.checkpoint())).unwrap()
    }

    fn damaged(&self) -> Vec<String> {
        let names =
            fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut damaged: Vec<_> = names.filter(|name| name.contains(".damaged-")).collect();
        damaged.sort();
        damaged
    }
}

async fn close(store: Opened) {
    store.log.close().await;
    // Waits for the checkpoint's thread.
    drop(store.machine);
}

/// A machine with ten entries applied and checkpointed, and no snapshot.
async fn with_checkpoint() -> Machine {
    let machine = Machine::new();
    let mut store = machine.open();
    store.append(entries(1, 0..12)).await.unwrap();
    store.apply_up_to(9).await.unwrap();
    close(store).await;
    machine
}

#[test]
fn a_restart_starts_from_the_checkpoint_with_the_same_digest() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 9)));
        assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..10)).digest());
        store.apply_up_to(11).await.unwrap();
        close(store).await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 11)));
        assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..12)).digest());
        assert!(machine.damaged().is_empty());
    });
}

/// More than fits into one batch, and more events than are kept: most of them come and go between two writes.
#[test]
fn many_changes_are_written_in_parts() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        let mut store = machine.open();
        let (last, storm) = (17_500, entries(1, 12..17_501));
        for part in storm.chunks(500) {
            store.append(part.to_vec()).await.unwrap();
        }
        store.apply_up_to(last).await.unwrap();
        close(store).await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, last)));
        assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..last + 1)).digest());
        assert!(machine.damaged().is_empty());
    });
}

#[test]
fn a_checkpoint_ahead_of_the_log_is_ignored_and_overwritten() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        // The log forgets its tail, as it may when the power goes before the sync.
        let mut store = fixture::open(machine.sim.mount(), None).unwrap();
        store.log.truncate_after(Some(log_id(1, 5))).await.unwrap();
        store.log.close().await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, None);
        assert_eq!(store.log.purged(), None, "nothing may be purged on its account");
        store.apply_up_to(5).await.unwrap();
        close(store).await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 5)));
        assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..6)).digest());
    });
}

#[test]
fn a_checkpoint_of_entries_that_differ_in_the_log_is_ignored() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        let mut store = fixture::open(machine.sim.mount(), None).unwrap();
        store.log.truncate_after(Some(log_id(1, 5))).await.unwrap();
        store.append(entries(2, 6..12)).await.unwrap();
        store.log.close().await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, None);
    });
}

#[test]
fn a_checkpoint_older_than_the_newest_snapshot_is_ignored() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        let mut store = fixture::open(machine.sim.mount(), None).unwrap();
        store.apply_up_to(11).await.unwrap();
        store.snapshot().await.unwrap();
        store.log.close().await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 11)));
    });
}

#[test]
fn an_installed_snapshot_replaces_the_whole_checkpoint() {
    fixture::run(async {
        let leader = SimDisk::new();
        let mut source = fixture::open_sim(&leader);
        source.append(entries(3, 0..30)).await.unwrap();
        source.apply_up_to(29).await.unwrap();
        let snapshot = source.snapshot().await.unwrap();
        let machine = with_checkpoint().await;
        let mut store = machine.open();
        let meta = snapshot.header().meta().unwrap();
        store.machine.install_snapshot(&meta, snapshot).await.unwrap();
        store.log.purge(log_id(3, 29)).await.unwrap();
        close(store).await;
        let mut store = machine.open();
        assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(3, 29)));
        assert_eq!(store.machine.state().digest(), source.machine.state().digest());
    });
}

#[test]
fn f_27_a_damaged_checkpoint_is_moved_aside_and_rebuilt() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        for round in 1..=4_u64 {
            damage(&machine.checkpoint());
            let mut store = machine.open();
            assert_eq!(store.machine.applied_state().await.unwrap().0, None, "round {round}");
            let kept: Vec<_> =
                (round.saturating_sub(1).max(1)..=round).map(|n| format!("checkpoint.damaged-{n}")).collect();
            assert_eq!(machine.damaged(), kept, "at most two are kept");
            store.apply_up_to(9).await.unwrap();
            close(store).await;
            let mut store = machine.open();
            assert_eq!(store.machine.applied_state().await.unwrap().0, Some(log_id(1, 9)), "rebuilt");
            assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..10)).digest());
            close(store).await;
        }
    });
}

#[test]
fn f_27_a_flipped_bit_anywhere_in_the_checkpoint_never_changes_the_state() {
    fixture::run(async {
        let machine = with_checkpoint().await;
        let file = machine.checkpoint().join("db");
        let intact = fs::read(&file).unwrap();
        let written = intact.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..=written).step_by(written / 60) {
            let copy = Machine { sim: machine.sim.clone(), dir: tempfile::tempdir().unwrap() };
            copy_dir(&machine.checkpoint(), &copy.checkpoint());
            let mut content = intact.clone();
            content[at] ^= 0x10;
            fs::write(copy.checkpoint().join("db"), content).unwrap();
            let mut store = copy.open();
            let (applied, _) = store.machine.applied_state().await.unwrap();
            let known = applied.map_or(0, |id| id.index + 1);
            assert_eq!(store.machine.state().digest(), state_after(&entries(1, 0..known)).digest(), "byte {at}");
            close(store).await;
        }
    });
}

#[test]
fn the_checkpoint_of_another_store_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let state = state_after(&entries(1, 0..3));
    let moment = AppliedState { state, applied: log_id(1, 2), membership: StoredMembership::default() };
    let (checkpoint, found) = Checkpoint::open(path.clone(), BIRTH.store);
    assert!(found.is_none());
    checkpoint.replace(moment.clone());
    checkpoint.close();
    let (checkpoint, found) = Checkpoint::open(path.clone(), Uid(1));
    assert!(found.is_none());
    checkpoint.close();
    assert!(path.with_file_name("checkpoint.damaged-1").exists());
}

#[test]
fn changed_records_are_updated_and_removed_ones_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let membership = StoredMembership::default();
    let all = entries(1, 0..40);
    let mut shrunk = state_after(&all);
    let (checkpoint, _) = Checkpoint::open(path.clone(), BIRTH.store);
    checkpoint.replace(AppliedState { state: shrunk.clone(), applied: log_id(1, 39), membership: membership.clone() });
    checkpoint.close();
    let (checkpoint, found) = Checkpoint::open(path.clone(), BIRTH.store);
    assert_eq!(found.unwrap().state.digest(), shrunk.digest());
    let applied = delete_node(&mut shrunk, "node-1-7");
    checkpoint.note(AppliedState { state: shrunk.clone(), applied: log_id(1, 40), membership }, applied);
    checkpoint.close();
    let (_, found) = Checkpoint::open(path, BIRTH.store);
    let found = found.unwrap();
    assert_eq!((found.state.digest(), found.applied), (shrunk.digest(), log_id(1, 40)));
    assert!(found.state.node("node-1-7").is_none());
}

#[test]
fn a_checkpoint_that_cannot_be_written_does_not_stop_the_replica() {
    fixture::run(async {
        let machine = Machine::new();
        fs::write(machine.checkpoint(), "a file where a directory should be").unwrap();
        let parent = Arc::new(machine.dir.path().join("missing/parent/checkpoint"));
        fs::write(machine.dir.path().join("missing"), "").unwrap();
        let mut store = fixture::open(machine.sim.mount(), Some(parent.to_path_buf())).unwrap();
        store.append(entries(1, 0..3)).await.unwrap();
        store.apply_up_to(2).await.unwrap();
        assert_eq!(store.published.told().applied, Some(log_id(1, 2)));
        close(store).await;
    });
}

fn delete_node(state: &mut muster_lifecycle::state::State, name: &str) -> Vec<muster_lifecycle::record::RecordKey> {
    use muster_lifecycle::command::{OperatorOperation, Position, Precondition};
    let mut batch = fixture::batch(1, 40);
    batch.commands[0].operation =
        OperatorOperation::DeleteNode { name: name.into(), precondition: Precondition::default() }.into();
    state.apply(Position { term: 1, index: 40 }, &batch).touched
}

/// Overwrites the middle of every file.
fn damage(dir: &Path) {
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let mut content = fs::read(&path).unwrap();
            content.iter_mut().for_each(|byte| *byte ^= 0xa5);
            fs::write(&path, content).unwrap();
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target)
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
