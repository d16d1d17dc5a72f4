//! Restore of a backup into a new cluster: the same fleet, raised revisions, a new generation.
//!
//! Run on every replica with the same file. Each gets the same first snapshot, so they start as one cluster;
//! replicas of the old one are refused by their generation.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_lifecycle::meta::Uid;
use muster_raft::abort::AbortProcess;
use muster_raft::disk::Disk;
use muster_raft::disk::real::{DiskError, RealDisk};
use muster_raft::level_guard::{Build, LevelGuard, Outgrown};
use muster_raft::snapshot_store::{SnapshotError, read_snapshot};
use muster_raft::store::{ReplicaStore, ReplicaStoreError, Restoration};
use thiserror::Error;

use crate::config::ServerConfig;
use crate::server::{endpoint, store_identity};

/// Far more than any watcher can have seen since the backup was made.
const REVISION_STEP: u64 = 1_000_000_000;

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error("cannot open the backup {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the backup {} cannot be used", path.display())]
    Backup { path: PathBuf, source: SnapshotError },
    #[error("the backup is of another fleet than this replica's, {ours}")]
    OtherFleet { ours: String },
    #[error("generation {asked} is not newer than the backup's {current}: choose a higher one")]
    OldGeneration { asked: u64, current: u64 },
    #[error("a restore needs `initial_members`: this replica's configuration has `join = true`")]
    Joining,
    #[error(transparent)]
    Outgrown(#[from] Outgrown),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    ReplicaStore(#[from] ReplicaStoreError),
}

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreReport {
    pub nodes: u64,
    pub revision: u64,
    pub generation: u64,
}

/// Fills the empty data directory of one replica from a backup.
pub fn restore(
    build: Build,
    config: &ServerConfig,
    backup: &Path,
    generation: Option<u64>,
) -> Result<RestoreReport, RestoreError> {
    if config.initial_members.is_empty() {
        return Err(RestoreError::Joining);
    }
    let file = File::open(backup).map_err(|source| RestoreError::Open { path: backup.to_owned(), source })?;
    let (header, mut state) = read_snapshot(BufReader::new(file))
        .map_err(|source| RestoreError::Backup { path: backup.to_owned(), source })?;
    LevelGuard::new(build).check(state.level_in_force())?;
    let identity = store_identity(config);
    if header.fleet != identity.fleet.0 {
        return Err(RestoreError::OtherFleet { ours: config.fleet.to_string() });
    }
    let current = state.generation();
    let generation = generation.unwrap_or(current + 1);
    if generation <= current {
        return Err(RestoreError::OldGeneration { asked: generation, current });
    }
    // A step per generation, so that a second restore of the same backup does not reuse the first one's revisions.
    state.raise_revision(REVISION_STEP.saturating_mul(generation - current), generation);
    let members = config.initial_members.iter().map(|member| (member.id, endpoint(member))).collect();
    let report = RestoreReport {
        nodes: state.node_counts().total as u64,
        revision: state.revision().0,
        generation: state.generation(),
    };
    let disk: Arc<dyn Disk> = RealDisk::open(&config.data_dir)?;
    let restoration = Restoration { identity, store: Uid(rand::random()), state: &state, members };
    ReplicaStore::restore(&disk, &restoration, Arc::new(AbortProcess))?;
    Ok(report)
}
