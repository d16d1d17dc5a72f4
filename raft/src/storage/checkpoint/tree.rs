//! The files of the checkpoint: one sled tree.
//!
//! sled may lose what it was told to flush, return errors on opening, or panic. So every call to it is guarded, and
//! everything read from it is verified against a digest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use muster_lifecycle::level::Level;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::state::StateBuilder;
use serde::{Deserialize, Serialize};
use sled::{Batch, Db};
use thiserror::Error;

use super::{AppliedState, Work};
use crate::storage::frame;
use crate::storage::persisted::{self, LogIdRecord, StoredMembershipRecord};
use crate::types::{LogId, StoredMembership};

const VERSION: u32 = 2;
/// A small cache: nothing is read after the start, so nothing is worth keeping.
const CACHE_BYTES: u64 = 1024 * 1024;
/// After this many bytes sled is opened anew, to free the memory it keeps.
const REOPEN_BYTES: u64 = 64 * 1024 * 1024;
/// The most records written at once. More are written in parts: memory holds a batch as a whole, and more than once.
const CHUNK_RECORDS: usize = 4_096;
/// The attempts to open files that are still locked, and the pause between two attempts.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The damaged checkpoints that are kept for people who investigate the damage.
const DAMAGED_MAX: usize = 2;

/// The key of the record that describes the others. Records have their own prefix.
const META: &[u8] = b"m";
const RECORD: u8 = b'r';
const COMPLETE: &str = "complete";

#[derive(Debug, Error)]
pub(super) enum TreeError {
    #[error("the database failed ({0})")]
    Sled(#[from] sled::Error),
    #[error("the database panicked")]
    Panicked,
    #[error("it has version {found}, this build reads version {VERSION}")]
    OtherVersion { found: u32 },
    #[error("it is of level {0}, which this build does not know")]
    NewerLevel(Level),
    #[error("it belongs to store {found:032x}, this is store {expected:032x}")]
    OtherStore { found: u128, expected: u128 },
    #[error("{0}")]
    Damaged(String),
    #[error("its directory cannot be written ({0})")]
    Io(#[from] io::Error),
    #[error("it could not be moved aside ({0})")]
    MoveAside(io::Error),
}

/// The description of the records: which state they are. Written in the same batch as they are.
#[derive(Serialize, Deserialize)]
struct Meta {
    version: u32,
    store: u128,
    applied: LogIdRecord,
    membership: StoredMembershipRecord,
    digest: u128,
    level: Level,
}

pub(super) struct Tree {
    database: Db,
    store: Uid,
    dir: PathBuf,
    /// Bytes handed to sled since it was opened.
    written: u64,
    /// No event later than this one has ever been written. `None` if that is not known.
    last_event: Option<u64>,
    /// A file that exists from the first complete write on and is removed while much is written in parts. sled opens a
    /// garbled file as an empty one, which must not pass for a checkpoint that was never written.
    complete: PathBuf,
}

// === impl Tree ===

impl Tree {
    /// Opens the existing files; if they are not sound, moves them aside and starts empty.
    pub(super) fn open_or_replace(dir: PathBuf, store: Uid) -> Result<(Self, Option<AppliedState>), TreeError> {
        let existed = dir.exists();
        let error = match guarded(|| Self::open(&dir, store)) {
            Ok(opened) => return Ok(opened),
            Err(error) if !existed => return Err(error),
            // A later build wrote it and will read it again.
            Err(error @ TreeError::NewerLevel(_)) => return Err(error),
            Err(error) => error,
        };
        let aside = move_aside(&dir).map_err(TreeError::MoveAside)?;
        tracing::warn!(
            %error,
            checkpoint = %dir.display(),
            moved_to = %aside.display(),
            "the checkpoint is not usable: moved aside, the state is rebuilt from snapshot and log"
        );
        guarded(|| Self::open(&dir, store))
    }

    fn open(dir: &Path, store: Uid) -> Result<(Self, Option<AppliedState>), TreeError> {
        let (dir, complete) = (dir.to_owned(), dir.join(COMPLETE));
        let mut tree = Self { database: open_database(&dir)?, store, dir, written: 0, last_event: None, complete };
        let moment = tree.load()?;
        if moment.is_none() && tree.complete.exists() {
            return Err(damaged("it was complete once and holds nothing now"));
        }
        tree.reopen()?;
        Ok((tree, moment))
    }

    /// Opens sled anew. sled keeps what it has read and written in memory, far beyond the cache it was given. Nothing
    /// of it is needed again, and opening it anew frees it.
    fn reopen(&mut self) -> Result<(), TreeError> {
        // The files are locked while a handle lives: an empty database in memory takes its place for a moment.
        self.database = sled::Config::new().temporary(true).open()?;
        self.database = open_database(&self.dir)?;
        self.written = 0;
        Ok(())
    }

    /// `None` if there is no complete checkpoint.
    fn load(&self) -> Result<Option<AppliedState>, TreeError> {
        let Some(meta) = self.database.get(META)? else { return Ok(None) };
        let meta = self.check_meta(&meta)?;
        let mut builder = StateBuilder::new();
        for record in self.database.scan_prefix([RECORD]) {
            let (key, value) = record?;
            let key = RecordKey::from_bytes(&key[1..]).map_err(damaged)?;
            builder.push(&key, &value).map_err(damaged)?;
        }
        let state = builder.finish().map_err(damaged)?;
        if state.digest().0 != meta.digest {
            return Err(damaged("its records do not have the digest they should have"));
        }
        let membership = StoredMembership::try_from(meta.membership).map_err(damaged)?;
        Ok(Some(AppliedState { state, applied: LogId::from(meta.applied), membership }))
    }

    fn check_meta(&self, stored: &[u8]) -> Result<Meta, TreeError> {
        let payload = frame::open(META, stored).map_err(damaged)?;
        let meta: Meta = persisted::decode(payload).map_err(damaged)?;
        if meta.version != VERSION {
            return Err(TreeError::OtherVersion { found: meta.version });
        }
        if meta.level > Level::NEWEST {
            return Err(TreeError::NewerLevel(meta.level));
        }
        if meta.store != self.store.0 {
            return Err(TreeError::OtherStore { found: meta.store, expected: self.store.0 });
        }
        Ok(meta)
    }

    pub(super) fn write(&mut self, work: &Work) -> Result<(), TreeError> {
        guarded(|| {
            let state = &work.moment.state;
            if work.everything {
                let records = state.records().map(|(key, value)| (key, Some(value)));
                self.write_in_parts(&work.moment, true, records)?;
            } else if work.dirty.len() > CHUNK_RECORDS {
                let records = work.dirty.iter().map(|key| (key.clone(), state.record(key)));
                self.write_in_parts(&work.moment, false, records)?;
            } else {
                self.write_at_once(work)?;
            }
            self.last_event = state.events().iter().next_back().map(|event| event.sequence).or(self.last_event);
            self.reopen_when_heavy()
        })
    }

    fn write_at_once(&mut self, work: &Work) -> Result<(), TreeError> {
        let mut batch = Batch::default();
        for key in &work.dirty {
            self.stage(&mut batch, key, work.moment.state.record(key));
        }
        batch.insert(META, self.meta(&work.moment)?);
        self.database.apply_batch(batch)?;
        self.database.flush()?;
        Ok(())
    }

    /// Writes what is too much for one batch. Without its meta record the tree counts as empty, so that record is
    /// removed first and written last. The earlier content stays unless it is to be cleared.
    fn write_in_parts(
        &mut self,
        moment: &AppliedState,
        clear: bool,
        records: impl Iterator<Item = (RecordKey, Option<Vec<u8>>)>,
    ) -> Result<(), TreeError> {
        if self.complete.exists() {
            fs::remove_file(&self.complete)?;
        }
        self.database.remove(META)?;
        self.database.flush()?;
        if clear {
            self.database.clear()?;
        }
        let mut batch = Batch::default();
        for (number, (key, value)) in records.enumerate() {
            self.stage(&mut batch, &key, value);
            if number % CHUNK_RECORDS == CHUNK_RECORDS - 1 {
                self.database.apply_batch(std::mem::take(&mut batch))?;
                self.reopen_when_heavy()?;
            }
        }
        batch.insert(META, self.meta(moment)?);
        self.database.apply_batch(batch)?;
        self.database.flush()?;
        fs::write(&self.complete, "")?;
        Ok(())
    }

    fn reopen_when_heavy(&mut self) -> Result<(), TreeError> {
        if self.written < REOPEN_BYTES {
            return Ok(());
        }
        self.database.flush()?;
        self.reopen()
    }

    fn stage(&mut self, batch: &mut Batch, key: &RecordKey, value: Option<Vec<u8>>) {
        match value {
            Some(value) => {
                self.written += value.len() as u64;
                batch.insert(stored_key(key), value);
            }
            // In a storm most events come and go between two writes.
            None if self.was_never_written(key) => {}
            None => batch.remove(stored_key(key)),
        }
    }

    fn was_never_written(&self, key: &RecordKey) -> bool {
        let RecordKey::Event { sequence } = key else { return false };
        self.last_event.is_some_and(|last| *sequence > last)
    }

    fn meta(&self, moment: &AppliedState) -> Result<Vec<u8>, TreeError> {
        let meta = Meta {
            version: VERSION,
            store: self.store.0,
            applied: moment.applied.into(),
            membership: (&moment.membership).into(),
            digest: moment.state.digest().0,
            level: moment.state.level(),
        };
        Ok(frame::seal(META, &persisted::encode(&meta).map_err(damaged)?))
    }
}

/// The previous user may keep the files locked for a moment: sled's threads release them late.
fn open_database(dir: &Path) -> Result<Db, TreeError> {
    let config = sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    for _ in 1..LOCK_ATTEMPTS {
        match config.open() {
            Err(sled::Error::Io(error)) if error.kind() == io::ErrorKind::Other => thread::sleep(LOCK_PAUSE),
            opened => return Ok(opened?),
        }
    }
    Ok(config.open()?)
}

fn stored_key(key: &RecordKey) -> Vec<u8> {
    let mut stored = vec![RECORD];
    stored.extend(key.to_bytes());
    stored
}

fn damaged(detail: impl ToString) -> TreeError {
    TreeError::Damaged(detail.to_string())
}

/// Runs `work` in a thread of its own and waits for it: a panic of sled's ends there.
fn guarded<T: Send>(work: impl FnOnce() -> Result<T, TreeError> + Send) -> Result<T, TreeError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("muster-sled".to_owned()).spawn_scoped(scope, work)?;
        worker.join().unwrap_or(Err(TreeError::Panicked))
    })
}

/// Renames the directory, and removes the oldest of those that were moved before.
fn move_aside(dir: &Path) -> io::Result<PathBuf> {
    let mut earlier = damaged_numbers(dir)?;
    earlier.sort_unstable();
    let number = earlier.last().map_or(1, |last| last + 1);
    while earlier.len() >= DAMAGED_MAX {
        fs::remove_dir_all(damaged_path(dir, earlier.remove(0)))?;
    }
    let aside = damaged_path(dir, number);
    fs::rename(dir, &aside)?;
    Ok(aside)
}

fn damaged_path(dir: &Path, number: u64) -> PathBuf {
    dir.with_file_name(format!("{}{number}", damaged_prefix(dir)))
}

fn damaged_prefix(dir: &Path) -> String {
    format!("{}.damaged-", dir.file_name().unwrap_or_default().to_string_lossy())
}

fn damaged_numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let prefix = damaged_prefix(dir);
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut numbers = Vec::new();
    for entry in fs::read_dir(parent)? {
        let name = entry?.file_name();
        numbers.extend(name.to_string_lossy().strip_prefix(&prefix).and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use muster_golden::GoldenBytes;

    use super::*;

    #[test]
    fn the_bytes_of_the_description_are_pinned() {
        let (membership, applied) = (StoredMembershipRecord::default(), LogIdRecord { term: 3, index: 300 });
        let meta = Meta { version: VERSION, store: 5, applied, membership, digest: 7, level: Level(1) };
        let mut golden = GoldenBytes::default();
        golden.pin("description", persisted::encode(&meta).unwrap());
        golden.check(Path::new("golden/checkpoint.txt"));
    }
}
