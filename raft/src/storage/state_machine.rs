//! State machine: the replicated state, driven by the consensus library.
//!
//! Applying is pure and in memory. The result is published to readers and watchers first. Then the writers are
//! answered, so that a writer with an answer finds the effect of its write. Then the checkpoint is told.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};

use futures::stream::{Stream, StreamExt};
use muster_lifecycle::change::Change;
use muster_lifecycle::command::Position;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::state::{Applied, State};
use muster_lifecycle::table::Digest;
use openraft::EntryPayload;
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::level_guard::LevelGuard;
use crate::storage::checkpoint::{AppliedState, Checkpoint};
use crate::storage::halt::{Halt, HaltDump, HaltFile, RELEASE};
use crate::storage::persisted;
use crate::storage::snapshot_pressure::{Mark, SnapshotPressure};
use crate::storage::snapshot_store::{SnapshotFile, SnapshotHeader, SnapshotStore};
use crate::types::{LogEntry, LogId, Outcomes, SnapshotMeta, StoredMembership, TypeConfig};
use crate::write::encoded::EncodedBatch;

type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>;

/// Replicas compare the digests of their states at multiples of this index.
pub const DIGEST_EVERY: u64 = 256;
/// The most changes that are published together.
const PUBLISH_CHANGES_MAX: usize = 4_096;
/// The most entries that are answered together.
const PUBLISH_ENTRIES_MAX: usize = 1_024;

/// Learns what was applied, in order.
pub trait Publisher: Send + Sync + 'static {
    /// The state moved on to `applied` through these changes.
    fn publish(&self, state: State, applied: LogId, membership: &StoredMembership, changes: Vec<Change>);
    /// The state was replaced, by opening a store or installing a snapshot: watchers must start over.
    fn reset(&self, state: State, applied: Option<LogId>, membership: &StoredMembership);
    /// The digest of the state at an index that every replica passes.
    fn digest_at(&self, index: u64, digest: Digest);
}

/// The parts that a state machine works with.
pub(crate) struct Parts {
    pub(crate) snapshots: SnapshotStore,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) pressure: Arc<SnapshotPressure>,
    pub(crate) guard: Arc<LevelGuard>,
    pub(crate) halt_file: HaltFile,
}

/// Applies a batch at its position.
pub type ApplyBatch = fn(&mut State, Position, &EncodedBatch) -> Applied;

pub struct StateMachine {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    parts: Parts,
    apply: ApplyBatch,
    /// The entry that an earlier run panicked on.
    poison: Option<Halt>,
    /// Set when an entry panicked. Nothing is applied from then on.
    halted: Arc<OnceLock<Halt>>,
}

/// A view of one moment, to be written as a snapshot.
pub struct SnapshotBuilder {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshots: SnapshotStore,
    fleet: u128,
    mark: Mark,
}

/// Applied entries that are not published yet.
#[derive(Default)]
struct Unpublished {
    entries: usize,
    changes: Vec<Change>,
    touched: Vec<RecordKey>,
    answers: Vec<(ApplyResponder<TypeConfig>, Outcomes)>,
}

// === impl StateMachine ===

impl StateMachine {
    pub(crate) fn new(state: State, applied: Option<LogId>, membership: StoredMembership, parts: Parts) -> Self {
        parts.publisher.reset(state.clone(), applied, &membership);
        let apply = |state: &mut State, position, batch: &EncodedBatch| state.apply(position, batch);
        Self { state, applied, membership, parts, apply, poison: None, halted: Arc::default() }
    }

    /// Refuses the entry that an earlier run panicked on, if it comes up again.
    pub(crate) fn halting_at(self, poison: Option<Halt>) -> Self {
        let ahead = |halt: &Halt| halt.index == 0 || self.applied.is_none_or(|id| id.index < halt.index);
        Self { poison: poison.filter(ahead), ..self }
    }

    /// Applies batches by another function. For tests of what a panic does.
    #[must_use]
    pub fn applying_by(self, apply: ApplyBatch) -> Self {
        Self { apply, ..self }
    }

    /// Filled when an entry could not be applied.
    pub fn halted(&self) -> Arc<OnceLock<Halt>> {
        Arc::clone(&self.halted)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The snapshots of this replica, to send from and to receive into.
    pub fn snapshots(&self) -> SnapshotStore {
        self.parts.snapshots.clone()
    }

    pub fn guard(&self) -> Arc<LevelGuard> {
        Arc::clone(&self.parts.guard)
    }

    pub fn pressure(&self) -> Arc<SnapshotPressure> {
        Arc::clone(&self.parts.pressure)
    }

    /// Whether an earlier run panicked on this entry.
    fn is_poison(&self, entry: &LogEntry) -> bool {
        self.poison.as_ref().is_some_and(|poison| poison.index <= entry.log_id.index)
    }

    fn halt(&self, halt: Option<Halt>) {
        if let Some(halt) = halt {
            tracing::error!("{halt}");
            // Only the first halt is kept, and there is only one.
            let _ = self.halted.set(halt);
        }
    }

    /// Applies an entry. A panic leaves the state half changed: nothing may be published or applied after it.
    fn try_entry(
        &mut self,
        entry: LogEntry,
        responder: Option<ApplyResponder<TypeConfig>>,
        news: &mut Unpublished,
    ) -> Result<(), Halt> {
        let id = entry.log_id;
        let encoded = entry.clone();
        let done = panic::catch_unwind(AssertUnwindSafe(|| self.apply_entry(entry, responder, news)));
        done.map_err(|payload| {
            let dump = HaltDump {
                term: id.leader_id.term,
                index: id.index,
                release: RELEASE.to_owned(),
                panic: panic_text(&*payload),
                entry: persisted::encode_entry(&encoded).unwrap_or_default(),
            };
            self.parts.halt_file.write(&dump)
        })
    }

    fn apply_entry(&mut self, entry: LogEntry, responder: Option<ApplyResponder<TypeConfig>>, news: &mut Unpublished) {
        let id = entry.log_id;
        let outcomes = match entry.payload {
            EntryPayload::Blank => Outcomes::default(),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(id), membership);
                Outcomes::default()
            }
            EntryPayload::Normal(batch) => {
                let position = Position { term: id.leader_id.term, index: id.index };
                let applied = (self.apply)(&mut self.state, position, &batch);
                news.changes.extend(applied.changes);
                news.touched.extend(applied.touched);
                Outcomes(applied.outcomes)
            }
        };
        self.applied = Some(id);
        news.entries += 1;
        news.answers.extend(responder.map(|responder| (responder, outcomes)));
        if id.index.is_multiple_of(DIGEST_EVERY) {
            self.parts.publisher.digest_at(id.index, self.state.digest());
        }
    }

    /// A raise beyond what this build speaks: the state is not published any more, and nothing after it is applied.
    fn check_level(&self) -> io::Result<()> {
        let guard = &self.parts.guard;
        guard.check(self.state.level_in_force()).map_err(|outgrown| {
            guard.halt(outgrown.clone());
            io::Error::other(outgrown)
        })
    }

    fn publish(&self, news: Unpublished) {
        let Some(applied) = self.applied.filter(|_| news.entries > 0) else { return };
        self.parts.publisher.publish(self.state.clone(), applied, &self.membership, news.changes);
        for (responder, outcomes) in news.answers {
            responder.send(outcomes);
        }
        if let Some(checkpoint) = &self.parts.checkpoint {
            checkpoint.note(self.moment(applied), news.touched);
        }
    }

    fn moment(&self, applied: LogId) -> AppliedState {
        AppliedState { state: self.state.clone(), applied, membership: self.membership.clone() }
    }
}

// === impl Unpublished ===

impl Unpublished {
    fn is_full(&self) -> bool {
        self.changes.len() >= PUBLISH_CHANGES_MAX || self.entries >= PUBLISH_ENTRIES_MAX
    }
}

// === openraft's state machine traits ===

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + Send,
    {
        let mut news = Unpublished::default();
        let mut result = Ok(());
        while let Some(next) = entries.next().await {
            match next {
                // Entries after the one that panicked are taken and dropped: consensus goes on without this state, and
                // the standing of the replica keeps it from speaking.
                Ok(_) if self.halted.get().is_some() => {}
                Ok((entry, _)) if self.is_poison(&entry) => {
                    self.publish(std::mem::take(&mut news));
                    self.halt(self.poison.clone());
                }
                Ok((entry, responder)) => {
                    if let Err(halt) = self.try_entry(entry, responder, &mut news) {
                        // The state is half changed. Writers learn that their outcome is unknown.
                        news = Unpublished::default();
                        self.halt(Some(halt));
                    }
                    self.check_level()?;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            if news.is_full() {
                self.publish(std::mem::take(&mut news));
            }
        }
        self.publish(news);
        result
    }

    /// Puts off a snapshot that would fill the disk: the log has a reserve, the process would not survive it.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        if !force && self.halted.get().is_some() {
            return None;
        }
        if !force && !self.parts.snapshots.has_room() {
            tracing::warn!("no snapshot was taken: the disk has too little room for one; free some space");
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            state: self.state.clone(),
            applied: self.applied,
            membership: self.membership.clone(),
            snapshots: self.parts.snapshots.clone(),
            fleet: self.parts.snapshots.fleet(),
            mark: self.parts.pressure.mark(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFile) -> io::Result<()> {
        let of = snapshot.header().meta().map_err(io::Error::other)?;
        if of != *meta {
            let text = format!("the snapshot is of {of}, it was announced as one of {meta}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let snapshots = self.parts.snapshots.clone();
        let (_, state) =
            tokio::task::spawn_blocking(move || snapshots.install(snapshot)).await.map_err(io::Error::other)??;
        self.state = state;
        self.applied = of.last_log_id;
        self.membership = of.last_membership;
        self.parts.publisher.reset(self.state.clone(), self.applied, &self.membership);
        if let (Some(checkpoint), Some(applied)) = (&self.parts.checkpoint, self.applied) {
            checkpoint.replace(self.moment(applied));
        }
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        self.parts.snapshots.current().map(offer).transpose()
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let header = SnapshotHeader::new(&self.state, self.fleet, self.applied, &self.membership);
        let (snapshots, state, mark) = (self.snapshots.clone(), self.state.clone(), self.mark);
        let written = tokio::task::spawn_blocking(move || snapshots.write(header, &state, mark));
        offer(written.await.map_err(io::Error::other)??)
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn offer(snapshot: SnapshotFile) -> io::Result<Snapshot> {
    Ok(Snapshot { meta: snapshot.header().meta().map_err(io::Error::other)?, snapshot })
}
