//! Tables of the log database, its creation, and its check before anything trusts it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use muster_lifecycle::meta::Uid;
use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::witness::Witness;
use crate::storage::disk::{DatabaseFile, Disk};
use crate::storage::frame::{self, FrameError};
use crate::storage::persisted::{self, DecodeError, LogIdRecord, VoteRecord};
use crate::types::{LogEntry, LogId, Vote};
use muster_lifecycle::replica::ReplicaId;

pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
pub(super) const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

pub(super) const VOTE: &str = "vote";
pub(super) const PURGED: &str = "purged";
pub(super) const COMMITTED: &str = "committed";
/// The number of transactions so far. See the witness.
pub(super) const TRANSACTIONS: &str = "transactions";
const IDENTITY: &str = "identity";
const DATA_VERSION: &str = "data-version";

/// The version of everything in the data directory. A newer one is never touched.
pub const DATA_VERSION_NOW: u32 = 3;
/// The oldest version that can still be read: commands have been grouped by who may ask for them since.
const DATA_VERSION_OLDEST: u32 = 3;

pub const LOG_FILE: &str = "log.redb";
/// The name of an incomplete database. It gets its final name only when it is complete, so that a crash during creation
/// cannot be mistaken for a log that lost its content.
const LOG_FILE_NEW: &str = "log.redb.tmp";

/// The bytes of pages that redb keeps in memory. Recent entries are cached decoded, so this serves catching up only.
const PAGE_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// The replica that may use the store, and its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOwner {
    pub replica: ReplicaId,
    pub fleet: Uid,
}

/// The data that a new store is given at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewStore {
    /// Random. A replica that comes back with another one has lost its vote.
    pub store: Uid,
    /// How often the fleet was restored from a backup.
    pub generation: u64,
}

/// The beginning of a restored store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestoredStart {
    pub(crate) vote: Vote,
    pub(crate) purged: LogId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
struct IdentityRecord {
    store: u128,
    fleet: u128,
    generation: u64,
    replica: ReplicaId,
}

/// The content of a checked database besides its entries.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) new_store: NewStore,
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) committed: Option<LogId>,
    pub(super) first: u64,
    pub(super) last: Option<LogId>,
    pub(super) log_bytes: u64,
    pub(super) transactions: u64,
}

#[derive(Debug, Error)]
pub enum LogOpenError {
    #[error(
        "there is no replica data in {location}: if replica {replica} ran before, its disk was lost and it must not \
         come back under this id; run `muster member remove {replica}` on another replica, then join with a new id \
         (`muster member add`)"
    )]
    Missing { location: String, replica: ReplicaId },
    #[error("there is already replica data in {location}: remove it, or choose another directory")]
    Present { location: String },
    #[error(
        "the data in {location} belongs to replica {found}, this is replica {expected}: check the data directory and \
         the replica id"
    )]
    OtherReplica { location: String, found: ReplicaId, expected: ReplicaId },
    #[error(
        "the data in {location} belongs to fleet {found:032x}, this replica is configured for fleet {expected:032x}: \
         check the data directory and the certificates"
    )]
    OtherFleet { location: String, found: u128, expected: u128 },
    #[error(
        "the data in {location} has version {found}, this build reads up to version {DATA_VERSION_NOW}: run the \
         release that wrote it, or a newer one"
    )]
    NewerVersion { location: String, found: u32 },
    #[error(
        "the data in {location} has version {found}, this build reads from version {DATA_VERSION_OLDEST} on: take a \
         backup with the release that wrote it, and form the cluster anew"
    )]
    OlderVersion { location: String, found: u32 },
    #[error(
        "the log in {location} is damaged ({detail}): replica {replica} must not start from it; the other replicas go \
         on without it. To replace it, run `muster member remove {replica}` on one of them, move this directory away, \
         and join with a new id (`muster member add`)"
    )]
    Damaged { location: String, replica: ReplicaId, detail: String },
    #[error("the data in {location} cannot be read or written: check the disk")]
    Io { location: String, source: io::Error },
}

/// The reason why a check stopped. It becomes an [`LogOpenError`] once the store's location and identity are added.
#[derive(Debug)]
enum Fault {
    Io(io::Error),
    Damage(String),
    NewerVersion(u32),
    OlderVersion(u32),
}

// === creating ===

/// Creates the database, complete and durable. A failure leaves no file that counts as a log.
pub(crate) fn create(
    disk: &Arc<dyn Disk>,
    identity: &StoreOwner,
    new_store: &NewStore,
    origin: Option<&RestoredStart>,
) -> Result<(), LogOpenError> {
    let present = disk.exists(LOG_FILE).map_err(|source| LogOpenError::Io { location: disk.location(), source })?;
    if present {
        return Err(LogOpenError::Present { location: disk.location() });
    }
    write_new(disk, identity, new_store, origin).map_err(|fault| name(fault, disk, identity))
}

fn write_new(
    disk: &Arc<dyn Disk>,
    identity: &StoreOwner,
    new_store: &NewStore,
    origin: Option<&RestoredStart>,
) -> Result<(), Fault> {
    Witness::create(disk)?;
    let file = disk.create(LOG_FILE_NEW)?;
    let database = builder().create_with_backend(DatabaseFile(file))?;
    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    transaction.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
    transaction.set_quick_repair(true);
    {
        let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
        transaction.open_table(LOG).map_err(redb::Error::from)?;
        let mut put =
            |key: &str, frame: Vec<u8>| meta.insert(key, frame.as_slice()).map(drop).map_err(redb::Error::from);
        put(DATA_VERSION, meta_frame(DATA_VERSION, &DATA_VERSION_NOW)?)?;
        put(TRANSACTIONS, meta_frame(TRANSACTIONS, &0_u64)?)?;
        put(IDENTITY, meta_frame(IDENTITY, &IdentityRecord::new(identity, new_store))?)?;
        if let Some(origin) = origin {
            put(VOTE, meta_frame(VOTE, &VoteRecord::from(origin.vote))?)?;
            put(PURGED, meta_frame(PURGED, &LogIdRecord::from(origin.purged))?)?;
            put(COMMITTED, meta_frame(COMMITTED, &LogIdRecord::from(origin.purged))?)?;
        }
    }
    transaction.commit().map_err(redb::Error::from)?;
    drop(database);
    // Closing writes once more; the name must not be durable before that write is.
    disk.open(LOG_FILE_NEW)?.sync()?;
    disk.rename(LOG_FILE_NEW, LOG_FILE)?;
    disk.sync_dir()?;
    Ok(())
}

// === opening ===

/// Opens the database and reads every record of it.
pub(super) fn open(disk: &Arc<dyn Disk>, identity: &StoreOwner) -> Result<(Database, Witness, Content), LogOpenError> {
    let location = disk.location();
    match disk.exists(LOG_FILE) {
        Ok(true) => {}
        Ok(false) => return Err(LogOpenError::Missing { location, replica: identity.replica }),
        Err(source) => return Err(LogOpenError::Io { location, source }),
    }
    // A damaged page may trip an assertion in redb before it trips a check.
    let checked = panic::catch_unwind(AssertUnwindSafe(|| open_checked(disk)))
        .unwrap_or_else(|_| Err(Fault::Damage("the database cannot be opened".to_owned())));
    let (database, witness, content, found) = checked.map_err(|fault| name(fault, disk, identity))?;
    if found.fleet != identity.fleet.0 {
        return Err(LogOpenError::OtherFleet { location, found: found.fleet, expected: identity.fleet.0 });
    }
    if found.replica != identity.replica {
        return Err(LogOpenError::OtherReplica { location, found: found.replica, expected: identity.replica });
    }
    Ok((database, witness, content))
}

fn open_checked(disk: &Arc<dyn Disk>) -> Result<(Database, Witness, Content, IdentityRecord), Fault> {
    let file = disk.open(LOG_FILE)?;
    if file.is_empty()? {
        // redb would make a new database from an empty file.
        return Err(Fault::Damage("the file is empty".to_owned()));
    }
    let mut database = builder().create_with_backend(DatabaseFile(file))?;
    if !database.check_integrity()? {
        return Err(Fault::Damage("a page of the database does not have the checksum it should have".to_owned()));
    }
    let (content, identity) = check(&database)?;
    let (witness, seen) = Witness::open(disk)?;
    if content.transactions < seen {
        let text = format!("{seen} transactions were acknowledged, it knows of {}", content.transactions);
        return Err(Fault::Damage(text));
    }
    Ok((database, witness, content, identity))
}

fn check(database: &Database) -> Result<(Content, IdentityRecord), Fault> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let meta = transaction.open_table(META).map_err(redb::Error::from)?;
    let version: u32 = required(&meta, DATA_VERSION)?;
    if version > DATA_VERSION_NOW {
        return Err(Fault::NewerVersion(version));
    }
    if version < DATA_VERSION_OLDEST {
        return Err(Fault::OlderVersion(version));
    }
    let identity: IdentityRecord = required(&meta, IDENTITY)?;
    let purged = optional::<LogIdRecord>(&meta, PURGED)?.map(LogId::from);
    let log = transaction.open_table(LOG).map_err(redb::Error::from)?;
    let (last, log_bytes) = check_entries(&log, purged)?;
    let content = Content {
        new_store: NewStore { store: Uid(identity.store), generation: identity.generation },
        vote: optional::<VoteRecord>(&meta, VOTE)?.map(Vote::from),
        purged,
        committed: optional::<LogIdRecord>(&meta, COMMITTED)?.map(LogId::from),
        first: purged.map_or(0, |id| id.index + 1),
        last: last.or(purged),
        log_bytes,
        transactions: required(&meta, TRANSACTIONS)?,
    };
    Ok((content, identity))
}

/// Reads all entries: each intact, none missing, terms never falling.
fn check_entries(
    log: &impl ReadableTable<u64, &'static [u8]>,
    purged: Option<LogId>,
) -> Result<(Option<LogId>, u64), Fault> {
    let mut last: Option<LogId> = None;
    let mut bytes = 0;
    for record in log.iter().map_err(redb::Error::from)? {
        let (index, frame) = record.map_err(redb::Error::from)?;
        let index = index.value();
        let entry = read_entry(index, frame.value())?;
        let previous = last.or(purged);
        let expected = previous.map_or(0, |id| id.index + 1);
        if index != expected {
            return Err(Fault::Damage(format!("entry {expected} is missing, the next one present is {index}")));
        }
        if previous.is_some_and(|id| entry.log_id < id) {
            return Err(Fault::Damage(format!("entry {index} has a lower term than the one before it")));
        }
        bytes += frame.value().len() as u64;
        last = Some(entry.log_id);
    }
    Ok((last, bytes))
}

/// The entry stored at `index`, if it is intact.
pub(super) fn decode_entry(index: u64, frame: &[u8]) -> io::Result<LogEntry> {
    read_entry(index, frame).map_err(|fault| match fault {
        Fault::Io(error) => error,
        Fault::Damage(detail) => io::Error::new(io::ErrorKind::InvalidData, detail),
        Fault::NewerVersion(version) | Fault::OlderVersion(version) => {
            io::Error::new(io::ErrorKind::InvalidData, format!("data version {version}"))
        }
    })
}

fn read_entry(index: u64, frame: &[u8]) -> Result<LogEntry, Fault> {
    let damage = |error: &dyn std::fmt::Display| Fault::Damage(format!("entry {index}: {error}"));
    let payload = frame::open(&index.to_be_bytes(), frame).map_err(|error| damage(&error))?;
    let entry = persisted::decode_entry(payload).map_err(|error| damage(&error))?;
    if entry.log_id.index != index {
        return Err(damage(&format!("it says it is entry {}", entry.log_id.index)));
    }
    Ok(entry)
}

fn optional<T: DeserializeOwned>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<T>, Fault> {
    let Some(frame) = meta.get(key).map_err(redb::Error::from)? else { return Ok(None) };
    let payload = frame::open(key.as_bytes(), frame.value()).map_err(|error: FrameError| record_damage(key, &error))?;
    persisted::decode(payload).map(Some).map_err(|error: DecodeError| record_damage(key, &error))
}

fn required<T: DeserializeOwned>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<T, Fault> {
    optional(meta, key)?.ok_or_else(|| Fault::Damage(format!("record {key} is missing")))
}

fn record_damage(key: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::Damage(format!("record {key}: {error}"))
}

/// A record of the `meta` table.
pub(super) fn meta_frame<T: Serialize>(key: &str, value: &T) -> io::Result<Vec<u8>> {
    Ok(frame::seal(key.as_bytes(), &persisted::encode(value).map_err(io::Error::other)?))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(PAGE_CACHE_BYTES);
    builder
}

fn name(fault: Fault, disk: &Arc<dyn Disk>, identity: &StoreOwner) -> LogOpenError {
    let location = disk.location();
    match fault {
        Fault::Io(source) => LogOpenError::Io { location, source },
        Fault::Damage(detail) => LogOpenError::Damaged { location, replica: identity.replica, detail },
        Fault::NewerVersion(found) => LogOpenError::NewerVersion { location, found },
        Fault::OlderVersion(found) => LogOpenError::OlderVersion { location, found },
    }
}

impl IdentityRecord {
    fn new(identity: &StoreOwner, new_store: &NewStore) -> Self {
        Self {
            store: new_store.store.0,
            fleet: identity.fleet.0,
            generation: new_store.generation,
            replica: identity.replica,
        }
    }
}

// === impl Fault ===

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        // A file that ends too early is damage, not a failing disk.
        let damage = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData);
        if damage { Self::Damage(error.to_string()) } else { Self::Io(error) }
    }
}

impl From<DatabaseError> for Fault {
    fn from(error: DatabaseError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        if let redb::Error::Io(error) = error { error.into() } else { Self::Damage(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use muster_golden::GoldenBytes;

    use super::*;

    #[test]
    fn the_bytes_of_the_records_beside_the_log_are_pinned() {
        let identity = IdentityRecord { store: 5, fleet: 7, generation: 300, replica: ReplicaId(2) };
        let mut golden = GoldenBytes::default();
        golden.pin(IDENTITY, meta_frame(IDENTITY, &identity).unwrap());
        golden.pin(DATA_VERSION, meta_frame(DATA_VERSION, &DATA_VERSION_NOW).unwrap());
        golden.pin(TRANSACTIONS, meta_frame(TRANSACTIONS, &300_u64).unwrap());
        golden.check(std::path::Path::new("golden/log_meta.txt"));
    }
}
