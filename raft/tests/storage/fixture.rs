//! Fixture: a store on a simulated disk, and entries to put into it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::stream;
use muster_lifecycle::change::Change;
use muster_lifecycle::command::{Batch, Command, OperatorOperation, Origin, Position};
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_lifecycle::table::Digest;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_raft::abort::{Abort, RecordAbort};
use muster_raft::disk::Disk;
use muster_raft::disk::sim::SimDisk;
use muster_raft::encoded::EncodedBatch;
use muster_raft::level_guard::Build;
use muster_raft::log_store::{LogStore, NewStore, StoreOwner};
use muster_raft::persisted::log_id;
use muster_raft::snapshot_store::SnapshotFile;
use muster_raft::state_machine::{Publisher, StateMachine};
use muster_raft::store::{OpenOptions, ReplicaStore, ReplicaStoreError, StoreInfo};
use muster_raft::types::{LogEntry, LogId, StoredMembership, TypeConfig, Vote};
use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::TypeConfigExt;

pub(crate) const FLEET: Uid = Uid(0xf1ee7);
pub(crate) const REPLICA: u64 = 1;
pub(crate) const IDENTITY: StoreOwner = StoreOwner { replica: ReplicaId(REPLICA), fleet: FLEET };
pub(crate) const BUILD: Build = Build { version: "0.1.0", levels: LevelRange::SHIPPED };
pub(crate) const BIRTH: NewStore = NewStore { store: Uid(0x57073), generation: 0 };

/// An opened store, and what it published.
pub(crate) struct Opened {
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) info: StoreInfo,
    pub(crate) published: Arc<Published>,
    pub(crate) abort: Arc<RecordAbort>,
}

/// Records what was published.
#[derive(Default)]
pub(crate) struct Published(Mutex<Told>);

#[derive(Default, Clone)]
pub(crate) struct Told {
    pub(crate) applied: Option<LogId>,
    pub(crate) changes: usize,
    pub(crate) resets: usize,
    pub(crate) digest: Option<Digest>,
    pub(crate) rounds: Vec<u64>,
}

impl Published {
    pub(crate) fn told(&self) -> Told {
        self.0.lock().unwrap().clone()
    }
}

impl Publisher for Published {
    fn publish(&self, state: State, applied: LogId, _: &StoredMembership, changes: Vec<Change>) {
        let mut told = self.0.lock().unwrap();
        told.applied = Some(applied);
        told.changes += changes.len();
        told.digest = Some(state.digest());
    }

    fn reset(&self, state: State, applied: Option<LogId>, _: &StoredMembership) {
        let mut told = self.0.lock().unwrap();
        told.applied = applied;
        told.resets += 1;
        told.digest = Some(state.digest());
    }

    fn digest_at(&self, index: u64, _: Digest) {
        self.0.lock().unwrap().rounds.push(index);
    }
}

pub(crate) fn open(disk: Arc<dyn Disk>, checkpoint_dir: Option<PathBuf>) -> Result<Opened, ReplicaStoreError> {
    open_as(disk, checkpoint_dir, BUILD)
}

pub(crate) fn open_as(
    disk: Arc<dyn Disk>,
    checkpoint_dir: Option<PathBuf>,
    build: Build,
) -> Result<Opened, ReplicaStoreError> {
    let published = Arc::new(Published::default());
    let abort = Arc::new(RecordAbort::default());
    let (log, machine, info) = ReplicaStore::open(OpenOptions {
        disk,
        checkpoint_dir,
        identity: IDENTITY,
        create: Some(BIRTH),
        publisher: published.clone(),
        abort: abort.clone(),
        build,
    })?;
    Ok(Opened { log, machine, info, published, abort })
}

pub(crate) fn open_sim(sim: &SimDisk) -> Opened {
    open(sim.mount(), None).unwrap()
}

impl Opened {
    /// Closes everything in an orderly way.
    pub(crate) async fn close(self) {
        self.log.close().await;
    }

    /// Appends and waits for the acknowledgement.
    pub(crate) async fn append(&mut self, entries: Vec<LogEntry>) -> io::Result<()> {
        let (flushed, acknowledged) = TypeConfig::oneshot();
        self.log.append(entries, IOFlushed::signal(flushed)).await?;
        acknowledged.await.map_err(io::Error::other)?
    }

    pub(crate) async fn vote(&mut self, term: u64) -> io::Result<()> {
        self.log.save_vote(&Vote::new(term, ReplicaId(REPLICA))).await
    }

    /// Applies the entries that the log holds after the last applied one, up to `last`.
    pub(crate) async fn apply_up_to(&mut self, last: u64) -> io::Result<()> {
        let start = self.machine.applied_state().await?.0.map_or(0, |id| id.index + 1);
        let entries = self.log.try_get_log_entries(start..=last).await?;
        self.machine.apply(stream::iter(entries.into_iter().map(|entry| Ok((entry, None))))).await
    }

    pub(crate) async fn snapshot(&mut self) -> io::Result<SnapshotFile> {
        Ok(self.machine.get_snapshot_builder().await.build_snapshot().await?.snapshot)
    }

    pub(crate) async fn entries(&mut self) -> Vec<LogEntry> {
        self.log.try_get_log_entries(..).await.unwrap()
    }
}

/// An entry that creates a node of its own. LogEntry 0 is the blank one that a cluster begins with.
pub(crate) fn entry(term: u64, index: u64) -> LogEntry {
    let payload = if index == 0 { EntryPayload::Blank } else { EntryPayload::Normal(sealed(batch(term, index))) };
    LogEntry { log_id: log_id(term, index), payload }
}

pub(crate) fn entries(term: u64, indexes: std::ops::Range<u64>) -> Vec<LogEntry> {
    indexes.map(|index| entry(term, index)).collect()
}

pub(crate) fn sealed(batch: Batch) -> EncodedBatch {
    EncodedBatch::new(Level::FIRST, batch).unwrap()
}

pub(crate) fn batch(term: u64, index: u64) -> Batch {
    let draft = NodeDraft { name: format!("node-{term}-{index}").into(), ..NodeDraft::default() };
    let operation =
        OperatorOperation::CreateNode { draft: Box::new(draft), uid: Uid(u128::from(index) << 64 | u128::from(term)) };
    let origin = Origin::Operator { user: "tester".into() };
    Batch {
        stamp: Stamp { cluster: ClusterTime(index), wall: WallTime(1_700_000_000_000) },
        commands: vec![Command { origin, request: None, operation: operation.into() }],
    }
}

/// The state after the given entries, computed by applying them alone.
pub(crate) fn state_after<'a>(entries: impl IntoIterator<Item = &'a LogEntry>) -> State {
    let mut state = State::new();
    for entry in entries {
        if let EntryPayload::Normal(batch) = &entry.payload {
            state.apply(Position { term: entry.log_id.leader_id.term, index: entry.log_id.index }, batch);
        }
    }
    state
}

pub(crate) fn recorder() -> Arc<dyn Abort> {
    Arc::new(RecordAbort::default())
}

/// Runs a test that awaits.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
