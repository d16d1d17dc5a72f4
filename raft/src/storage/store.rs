//! ReplicaStore: a replica's whole data directory, with log, snapshots and checkpoint.
//!
//! ```text
//! open:  log (verified)  +  newest of { snapshot (verified), checkpoint (verified, known to the log) }
//!        -> the consensus library replays the rest of the log
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use muster_lifecycle::meta::Uid;
use muster_lifecycle::state::State;
use thiserror::Error;

use crate::level_guard::{Build, LevelGuard, Outgrown};
use crate::storage::abort::Abort;
use crate::storage::checkpoint::{AppliedState, Checkpoint};
use crate::storage::disk::Disk;
use crate::storage::halt::HaltFile;
use crate::storage::log_store::{self, LOG_FILE, LogOpenError, LogStore, NewStore, RestoredStart, StoreOwner};
use crate::storage::persisted::log_id;
use crate::storage::snapshot_pressure::SnapshotPressure;
use crate::storage::snapshot_store::{self, Found, SnapshotError, SnapshotHeader, SnapshotStore};
use crate::storage::state_machine::{Parts, Publisher, StateMachine};
use crate::types::{Endpoint, LogId, StoredMembership, Vote};
use muster_lifecycle::replica::ReplicaId;

/// The term and index at which a restored cluster begins. All its replicas begin there.
const RESTORED_TERM: u64 = 1;
const RESTORED_INDEX: u64 = 1;

pub struct OpenOptions {
    pub disk: Arc<dyn Disk>,
    /// `None`: no checkpoint, a restart replays the log from the newest snapshot.
    pub checkpoint_dir: Option<PathBuf>,
    pub identity: StoreOwner,
    /// Allows an empty directory to become a new store. Only for a replica that never ran.
    pub create: Option<NewStore>,
    pub publisher: Arc<dyn Publisher>,
    pub abort: Arc<dyn Abort>,
    /// The build that opens the store. Data above its levels is refused.
    pub build: Build,
}

/// The facts that the store knows about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreInfo {
    pub store_id: Uid,
    pub generation: u64,
    /// Whether a cluster was ever formed or joined with it.
    pub initialized: bool,
}

/// The initial content of a restored replica.
pub struct Restoration<'a> {
    pub identity: StoreOwner,
    /// Random, as in [`NewStore`].
    pub store: Uid,
    /// Already raised: see [`State::raise_revision`].
    pub state: &'a State,
    /// The voters of the new cluster, the same on each of them.
    pub members: BTreeMap<ReplicaId, Endpoint>,
}

#[derive(Debug, Error)]
pub enum ReplicaStoreError {
    #[error(transparent)]
    Log(#[from] LogOpenError),
    #[error("the snapshots in {location} cannot be read or written: check the disk")]
    Snapshots { location: String, source: io::Error },
    #[error(
        "the log in {location} begins after {purged}, and no intact snapshot or checkpoint reaches so far ({detail}): \
         replica {replica} cannot start. The other replicas go on without it. To replace it, run `muster member remove \
         {replica}` on one of them, move this directory away, and join with a new id (`muster member add`)"
    )]
    NoBase { location: String, replica: ReplicaId, purged: LogId, detail: String },
    #[error(transparent)]
    Outgrown(#[from] Outgrown),
    #[error("{location}: {source}")]
    NewerSnapshot { location: String, source: SnapshotError },
    #[error("a restored cluster needs at least one member: name its replicas")]
    NoMembers,
}

pub struct ReplicaStore;

/// The state from which replaying starts.
struct Base {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
}

// === impl ReplicaStore ===

impl ReplicaStore {
    /// Opens everything, verified. Reads the whole log and state: blocks for as long as that takes.
    pub fn open(options: OpenOptions) -> Result<(LogStore, StateMachine, StoreInfo), ReplicaStoreError> {
        let OpenOptions { disk, checkpoint_dir, identity, create, publisher, abort, build } = options;
        let guard = Arc::new(LevelGuard::new(build));
        let log = open_log(&disk, &identity, create, &abort)?;
        let (level, raised_by) = log.opened_level();
        guard.check_level(level.max(build.levels.min), raised_by)?;
        let new_store = log.new_store();
        let unreadable = |source| ReplicaStoreError::Snapshots { location: disk.location(), source };
        let (snapshots, mut found) =
            SnapshotStore::open(Arc::clone(&disk), identity.fleet.0, new_store.generation, abort, log.pressure())
                .map_err(unreadable)?;
        refuse_newer(&mut found)?;
        report_damage(&found);
        let damage = describe_damage(&found);
        let (checkpoint, moment) = match checkpoint_dir {
            Some(dir) => {
                let (checkpoint, moment) = Checkpoint::open(dir, new_store.store);
                (Some(checkpoint), moment)
            }
            None => (None, None),
        };
        let base = choose(&log, found, checkpoint.as_ref(), moment).map_err(unreadable)?;
        if base.applied.is_some() {
            guard.check(base.state.level_in_force())?;
        }
        if let Some(purged) = log.purged().filter(|purged| Some(*purged) > base.applied) {
            let (location, replica) = (disk.location(), identity.replica);
            return Err(ReplicaStoreError::NoBase { location, replica, purged, detail: damage });
        }
        let info = StoreInfo {
            store_id: new_store.store,
            generation: new_store.generation,
            initialized: log.is_initialized() || base.applied.is_some(),
        };
        let halt_file = HaltFile(Arc::clone(&disk));
        let poison = halt_file.read().map_err(unreadable)?;
        let parts = Parts { snapshots, checkpoint, publisher, pressure: log.pressure(), guard, halt_file };
        let machine = StateMachine::new(base.state, base.applied, base.membership, parts).halting_at(poison);
        Ok((log, machine, info))
    }

    /// Makes a new store whose only content is the given state. All members of the new cluster must be given
    /// the same state and members; they then agree without any further step.
    pub fn restore(
        disk: &Arc<dyn Disk>,
        restoration: &Restoration<'_>,
        abort: Arc<dyn Abort>,
    ) -> Result<(), ReplicaStoreError> {
        let Restoration { identity, store, state, members } = restoration;
        let location = disk.location();
        let smallest = *members.keys().next().ok_or(ReplicaStoreError::NoMembers)?;
        let unreadable = |source| ReplicaStoreError::Snapshots { location: location.clone(), source };
        if disk.exists(LOG_FILE).map_err(unreadable)? {
            return Err(LogOpenError::Present { location }.into());
        }
        // An interrupted restore leaves snapshots without a log.
        snapshot_store::remove_all(&**disk).map_err(unreadable)?;
        let start = log_id(RESTORED_TERM, RESTORED_INDEX);
        let voters = vec![members.keys().copied().collect()];
        let membership =
            openraft::Membership::new(voters, members.clone()).map_err(|_| ReplicaStoreError::NoMembers)?;
        let header =
            SnapshotHeader::new(state, identity.fleet.0, Some(start), &StoredMembership::new(Some(start), membership));
        let pressure = Arc::new(SnapshotPressure::new(0));
        let generation = state.generation();
        let (snapshots, _) =
            SnapshotStore::open(Arc::clone(disk), identity.fleet.0, generation, abort, Arc::clone(&pressure))
                .map_err(unreadable)?;
        snapshots.write(header, state, pressure.mark()).map_err(unreadable)?;
        // No replica leads in that term: an uncommitted vote makes the first election use the next one.
        let origin = RestoredStart { vote: Vote::new(RESTORED_TERM, smallest), purged: start };
        log_store::create(disk, identity, &NewStore { store: *store, generation }, Some(&origin))?;
        Ok(())
    }
}

fn open_log(
    disk: &Arc<dyn Disk>,
    identity: &StoreOwner,
    create: Option<NewStore>,
    abort: &Arc<dyn Abort>,
) -> Result<LogStore, ReplicaStoreError> {
    let (disk, abort) = (Arc::clone(disk), Arc::clone(abort));
    let Some(new_store) = create else { return Ok(LogStore::open(disk, identity, abort)?) };
    let unreadable = |source| ReplicaStoreError::Snapshots { location: disk.location(), source };
    let has_log = disk.exists(LOG_FILE).map_err(unreadable)?;
    let has_snapshots = snapshot_store::any(&*disk).map_err(unreadable)?;
    if has_snapshots && !has_log {
        // An empty log beside a snapshot has lost its vote. A new log would break agreement.
        let detail = "there are snapshots but no log".to_owned();
        return Err(LogOpenError::Damaged { location: disk.location(), replica: identity.replica, detail }.into());
    }
    Ok(LogStore::open_or_create(disk, identity, &new_store, abort)?)
}

/// The newest state that can be trusted.
fn choose(
    log: &LogStore,
    found: Found,
    checkpoint: Option<&Checkpoint>,
    moment: Option<AppliedState>,
) -> io::Result<Base> {
    let base = match found.newest {
        Some((file, state)) => Base {
            state,
            applied: file.log_id(),
            membership: file.header().stored_membership().map_err(io::Error::other)?,
        },
        None => Base { state: State::new(), applied: None, membership: StoredMembership::default() },
    };
    let (Some(checkpoint), Some(moment)) = (checkpoint, moment) else { return Ok(base) };
    // The checkpoint is written without waiting for the log. After a power cut it may know entries that the log does
    // not. Starting from it would make the log begin where no durable snapshot is.
    let usable = Some(moment.applied) >= base.applied && log.contains(moment.applied)?;
    if usable {
        return Ok(Base { state: moment.state, applied: Some(moment.applied), membership: moment.membership });
    }
    tracing::warn!(
        checkpoint = %moment.applied,
        "the checkpoint does not fit the log: it is ignored and will be overwritten"
    );
    checkpoint.discard();
    Ok(base)
}

/// A snapshot of a later level is not damaged: a later build wrote it and will read it again.
fn refuse_newer(found: &mut Found) -> Result<(), ReplicaStoreError> {
    let newer = |(_, error): &(String, SnapshotError)| matches!(error, SnapshotError::NewerLevel { .. });
    match found.damaged.iter().position(newer) {
        Some(at) => {
            let (location, source) = found.damaged.swap_remove(at);
            Err(ReplicaStoreError::NewerSnapshot { location, source })
        }
        None => Ok(()),
    }
}

fn report_damage(found: &Found) {
    for (name, error) in &found.damaged {
        tracing::error!(name, %error, "a snapshot is damaged and is not used");
    }
}

fn describe_damage(found: &Found) -> String {
    match found.damaged.first() {
        Some((name, error)) => format!("{name}: {error}"),
        None => "there is none".to_owned(),
    }
}
