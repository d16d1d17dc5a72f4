//! Snapshot store: snapshots as files.
//!
//! A snapshot is complete, verified and durable under its name, or it does not exist. It is written to a temporary
//! name, synced and renamed, and the directory is synced, before any caller learns of it. Older snapshots are removed
//! only after that. So the log may be purged up to the newest.

mod file;
mod format;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::state::State;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::file::{Arrival, Temporary, load};
pub use self::file::{SnapshotChunks, SnapshotFile};
pub use self::format::{FORMAT, SnapshotError, SnapshotHeader, read_header, read_snapshot, write_snapshot};
use crate::storage::abort::Abort;
use crate::storage::disk::{Appender, Disk, DiskFile};
use crate::storage::log_store::RESERVE_BYTES;
use crate::storage::snapshot_pressure::{Mark, SnapshotPressure};
use crate::types::LogId;

const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".snap";
const TEMPORARY: &str = ".tmp";
/// The most transfers under way at once: one, and the one that replaces it.
const RECEIVING_MAX: usize = 2;

/// A handle; clones share the store.
#[derive(Clone)]
pub struct SnapshotStore {
    shared: Arc<SharedSnapshots>,
}

struct SharedSnapshots {
    disk: Arc<dyn Disk>,
    fleet: u128,
    generation: u64,
    abort: Arc<dyn Abort>,
    pressure: Arc<SnapshotPressure>,
    current: Mutex<Option<SnapshotFile>>,
    receiving: Arc<Semaphore>,
    /// Makes temporary names unique.
    numbers: AtomicU64,
}

/// The snapshots that were found at start.
pub(crate) struct Found {
    pub(crate) newest: Option<(SnapshotFile, State)>,
    /// Damaged or foreign files, and what is wrong with them.
    pub(crate) damaged: Vec<(String, SnapshotError)>,
}

/// A snapshot that arrives in pieces.
pub struct SnapshotReceiver {
    store: SnapshotStore,
    temporary: Temporary,
    file: Arc<dyn DiskFile>,
    out: Appender,
    _permit: OwnedSemaphorePermit,
}

// === impl SnapshotStore ===

impl SnapshotStore {
    /// Removes unfinished files, and loads the newest snapshot that is intact.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        fleet: u128,
        generation: u64,
        abort: Arc<dyn Abort>,
        pressure: Arc<SnapshotPressure>,
    ) -> io::Result<(Self, Found)> {
        remove_unfinished(&*disk)?;
        let found = find(&disk, fleet)?;
        if let Some((file, _)) = &found.newest {
            pressure.found(file.len());
        }
        let current = Mutex::new(found.newest.as_ref().map(|(file, _)| file.clone()));
        let receiving = Arc::new(Semaphore::new(RECEIVING_MAX));
        let numbers = AtomicU64::new(0);
        let shared =
            Arc::new(SharedSnapshots { disk, fleet, generation, abort, pressure, current, receiving, numbers });
        Ok((Self { shared }, found))
    }

    pub(crate) fn fleet(&self) -> u128 {
        self.shared.fleet
    }

    /// The newest durable snapshot.
    pub fn current(&self) -> Option<SnapshotFile> {
        self.current_slot().clone()
    }

    /// Whether a snapshot of about the expected size would fit beside the current one.
    pub fn has_room(&self) -> bool {
        let pressure = &self.shared.pressure;
        let expected = pressure.last_snapshot_bytes().saturating_add(pressure.log_bytes_since_snapshot());
        self.shared.disk.free_bytes().is_ok_and(|free| free > expected.saturating_add(RESERVE_BYTES / 2))
    }

    /// Writes a snapshot and makes it the current one. Blocks. A failure ends the process.
    pub(crate) fn write(&self, header: SnapshotHeader, state: &State, mark: Mark) -> io::Result<SnapshotFile> {
        self.or_abort(self.try_write(header, state, mark))
    }

    /// Prepares for a snapshot from another replica.
    pub fn receive(&self) -> Result<SnapshotReceiver, SnapshotError> {
        let permit = Arc::clone(&self.shared.receiving).try_acquire_owned().map_err(|_| SnapshotError::Busy)?;
        let (temporary, file) = self.temporary()?;
        let out = Appender::new(Arc::clone(&file));
        Ok(SnapshotReceiver { store: self.clone(), temporary, file, out, _permit: permit })
    }

    /// Makes a received snapshot the current one. Blocks. A failure ends the process.
    pub(crate) fn install(&self, snapshot: SnapshotFile) -> io::Result<(SnapshotFile, State)> {
        self.or_abort(self.try_install(snapshot))
    }

    fn try_write(&self, header: SnapshotHeader, state: &State, mark: Mark) -> Result<SnapshotFile, SnapshotError> {
        let (temporary, file) = self.temporary()?;
        let mut out = Appender::new(Arc::clone(&file));
        write_snapshot(&mut out, &header, state)?;
        let len = out.written();
        file.sync()?;
        let snapshot = SnapshotFile::new(file, name(header.log_id()), header, len);
        self.publish(&temporary, &snapshot)?;
        self.shared.pressure.relieve(mark, len);
        Ok(snapshot)
    }

    fn try_install(&self, snapshot: SnapshotFile) -> Result<(SnapshotFile, State), SnapshotError> {
        if self.current().is_some_and(|current| current.is_same_file(&snapshot)) {
            let (_, state) = snapshot.load()?;
            return Ok((snapshot, state));
        }
        if let Some(arrival) = snapshot.arrival_on(&self.shared.disk) {
            return self.settle(&snapshot, arrival);
        }
        let (copy, arrival) = self.copy(&snapshot)?;
        self.settle(&copy, &arrival)
    }

    fn settle(&self, snapshot: &SnapshotFile, arrival: &Arrival) -> Result<(SnapshotFile, State), SnapshotError> {
        let mark = self.shared.pressure.mark();
        let settled = snapshot.settled();
        self.publish(&arrival.temporary, &settled)?;
        self.shared.pressure.relieve(mark, settled.len());
        Ok((settled, arrival.state.clone()))
    }

    /// Copies a snapshot from another disk.
    fn copy(&self, snapshot: &SnapshotFile) -> Result<(SnapshotFile, Arrival), SnapshotError> {
        let mut receiver = self.receive()?;
        for chunk in snapshot.chunks() {
            receiver.write(&chunk?)?;
        }
        receiver.verify()
    }

    /// Gives a synced file its name, durably, and removes the files that it replaces.
    fn publish(&self, temporary: &Temporary, snapshot: &SnapshotFile) -> io::Result<()> {
        let disk = &self.shared.disk;
        let mut current = self.current_slot();
        if current.as_ref().is_some_and(|current| current.log_id() > snapshot.log_id()) {
            // A newer one was installed while this one was being made.
            return Ok(());
        }
        disk.rename(temporary.name(), snapshot.name())?;
        temporary.keep();
        disk.sync_dir()?;
        *current = Some(snapshot.clone());
        for name in snapshot_names(&**disk)? {
            if name != snapshot.name() {
                disk.remove(&name)?;
            }
        }
        Ok(())
    }

    fn temporary(&self) -> io::Result<(Temporary, Arc<dyn DiskFile>)> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{number}{TEMPORARY}");
        let file = self.shared.disk.create(&name)?;
        Ok((Temporary::new(Arc::clone(&self.shared.disk), name), file))
    }

    fn current_slot(&self) -> MutexGuard<'_, Option<SnapshotFile>> {
        self.shared.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_origin(&self, header: &SnapshotHeader) -> Result<(), SnapshotError> {
        let (fleet, generation) = (self.shared.fleet, self.shared.generation);
        if header.fleet != fleet {
            return Err(SnapshotError::OtherFleet { found: header.fleet, expected: fleet });
        }
        if header.generation < generation {
            return Err(SnapshotError::OlderGeneration { found: header.generation, expected: generation });
        }
        Ok(())
    }

    /// A disk that fails under a snapshot fails under the log as well. See [`crate::storage::abort`].
    fn or_abort<T>(&self, result: Result<T, SnapshotError>) -> io::Result<T> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(SnapshotError::Io(error)) => error,
            Err(other) => return Err(io::Error::other(other)),
        };
        let location = self.shared.disk.location();
        let reason = format!(
            "a snapshot in {location} could not be written ({error}); check that the disk is healthy and not full, then \
             start this replica again; the other replicas go on without this one"
        );
        tracing::error!(%error, %location, "{reason}");
        self.shared.abort.abort(&reason);
        Err(error)
    }
}

// === impl SnapshotReceiver ===

impl SnapshotReceiver {
    /// Takes the next piece. Blocks for as long as the page cache does.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), SnapshotError> {
        let free = self.store.shared.disk.free_bytes()?;
        if free < RESERVE_BYTES.saturating_add(piece.len() as u64) {
            return Err(SnapshotError::DiskFull);
        }
        io::Write::write_all(&mut self.out, piece)?;
        Ok(())
    }

    /// Verifies all that was received, so that only a sound snapshot is ever offered for installing. Blocks.
    pub fn finish(self) -> Result<SnapshotFile, SnapshotError> {
        let (snapshot, arrival) = self.verify()?;
        Ok(snapshot.arriving(arrival))
    }

    fn verify(self) -> Result<(SnapshotFile, Arrival), SnapshotError> {
        self.store.or_abort(self.file.sync().map_err(SnapshotError::Io))?;
        let (header, state) = load(&self.file)?;
        self.store.check_origin(&header)?;
        let name = name(header.log_id());
        let snapshot = SnapshotFile::new(self.file, name, header, self.out.written());
        Ok((snapshot, Arrival { temporary: self.temporary, state }))
    }
}

// === names ===

fn name(id: Option<LogId>) -> String {
    match id {
        Some(id) => format!("{PREFIX}{}-{}{SUFFIX}", id.leader_id.term, id.index),
        None => format!("{PREFIX}empty{SUFFIX}"),
    }
}

/// The term and index in a snapshot's name, to sort by. Unreadable names sort first.
fn position(name: &str) -> Option<(u64, u64)> {
    let (term, index) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
    Some((term.parse().ok()?, index.parse().ok()?))
}

fn snapshot_names(disk: &dyn Disk) -> io::Result<Vec<String>> {
    let mut names = disk.list()?;
    names.retain(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
    Ok(names)
}

/// Whether the directory holds any snapshot, intact or not.
pub(crate) fn any(disk: &dyn Disk) -> io::Result<bool> {
    Ok(!snapshot_names(disk)?.is_empty())
}

pub(crate) fn remove_all(disk: &dyn Disk) -> io::Result<()> {
    for name in snapshot_names(disk)? {
        disk.remove(&name)?;
    }
    Ok(())
}

fn remove_unfinished(disk: &dyn Disk) -> io::Result<()> {
    for name in disk.list()? {
        if name.starts_with(PREFIX) && name.ends_with(TEMPORARY) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

fn find(disk: &Arc<dyn Disk>, fleet: u128) -> io::Result<Found> {
    let mut names = snapshot_names(&**disk)?;
    names.sort_by_key(|name| std::cmp::Reverse(position(name)));
    let mut damaged = Vec::new();
    for name in names {
        match open_file(disk, &name, fleet) {
            Ok(newest) => return Ok(Found { newest: Some(newest), damaged }),
            Err(error) => damaged.push((name, error)),
        }
    }
    Ok(Found { newest: None, damaged })
}

fn open_file(disk: &Arc<dyn Disk>, name: &str, fleet: u128) -> Result<(SnapshotFile, State), SnapshotError> {
    let file = disk.open(name)?;
    let (header, state) = load(&file)?;
    if header.fleet != fleet {
        return Err(SnapshotError::OtherFleet { found: header.fleet, expected: fleet });
    }
    let len = file.len()?;
    Ok((SnapshotFile::new(file, name.to_owned(), header, len), state))
}
