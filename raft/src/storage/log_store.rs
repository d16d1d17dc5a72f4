//! Log store: the vote and the log, durable.
//!
//! ```text
//! append, vote, truncate, purge --> tail (memory, visible at once) --> queue --> writer thread --> redb
//!        ^                                                                            |
//!        +------------------ acknowledgement, only after the commit is on disk -------+
//! ```
//!
//! Raft's promises rest on vote and log: a replica that forgets them breaks agreement. So nothing is acknowledged
//! before it is synced, every record is checksummed, everything is verified before the store is used, and a replica
//! never starts from a damaged store.

mod capacity;
mod tables;
mod tail;
mod witness;
mod writer;

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use futures::stream::{self, Stream, StreamExt};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use redb::{Database, ReadableDatabase};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use self::capacity::{DiskFull, LogCapacity, RESERVE_BYTES};
pub use self::tables::{DATA_VERSION_NOW, LOG_FILE, LogOpenError, NewStore, StoreOwner};
pub(crate) use self::tables::{RestoredStart, create};
use self::tail::{Encoded, Tail};
use self::writer::{Append, Op, Writer};
use crate::storage::abort::Abort;
use crate::storage::disk::Disk;
use crate::storage::disk_health::DiskHealth;
use crate::storage::snapshot_pressure::SnapshotPressure;
use crate::storage::{frame, persisted};
use crate::types::{LogEntry, LogId, TypeConfig, Vote};

/// The most operations that wait for the writer. Beyond this, callers wait.
const QUEUE_MAX: usize = 1_024;
/// The most bytes that wait for the writer, in units of [`ROOM_UNIT`]. A single larger append goes alone.
const ROOM_UNITS: u32 = 64 * 1_024;
const ROOM_UNIT: usize = 1_024;
/// The most bytes of entries in one replication message, by their stored size.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The attempts of a read that keeps meeting truncations; more would not help.
const READ_ATTEMPTS_MAX: usize = 16;

/// A handle to the log; clones share it.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<SharedLog>,
    queue: mpsc::Sender<Op>,
    /// Bounds the bytes that wait to be written.
    room: Arc<Semaphore>,
}

struct SharedLog {
    tail: Mutex<Tail>,
    /// `None` once closed.
    database: RwLock<Option<Database>>,
    location: String,
    disk: Arc<dyn Disk>,
    health: DiskHealth,
    new_store: NewStore,
    pressure: Arc<SnapshotPressure>,
}

// === impl LogStore ===

impl LogStore {
    /// Opens the log of this replica; it must exist. Reads and verifies all of it.
    pub fn open(disk: Arc<dyn Disk>, identity: &StoreOwner, abort: Arc<dyn Abort>) -> Result<Self, LogOpenError> {
        let (database, witness, content) = tables::open(&disk, identity)?;
        let pressure = Arc::new(SnapshotPressure::new(content.log_bytes));
        let location = disk.location();
        let (queue, received) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(SharedLog {
            tail: Mutex::new(Tail::new(&content)),
            database: RwLock::new(Some(database)),
            location: location.clone(),
            health: DiskHealth::new(Arc::clone(&disk)),
            disk,
            new_store: content.new_store,
            pressure,
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            queue: received,
            abort,
            witness,
            transactions: content.transactions,
            committed: None,
        };
        thread::Builder::new()
            .name("muster-log".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| LogOpenError::Io { location, source })?;
        let room = Arc::new(Semaphore::new(ROOM_UNITS as usize));
        Ok(Self { shared, queue, room })
    }

    /// Like [`LogStore::open`], but a missing log is created first. Only for a replica that never ran.
    pub fn open_or_create(
        disk: Arc<dyn Disk>,
        identity: &StoreOwner,
        new_store: &NewStore,
        abort: Arc<dyn Abort>,
    ) -> Result<Self, LogOpenError> {
        match create(&disk, identity, new_store, None) {
            Ok(()) | Err(LogOpenError::Present { .. }) => Self::open(disk, identity, abort),
            Err(error) => Err(error),
        }
    }

    /// The identity that the store was given when it was created.
    pub fn new_store(&self) -> NewStore {
        self.shared.new_store
    }

    /// Whether a cluster has ever been formed or joined with this store.
    pub fn is_initialized(&self) -> bool {
        let tail = self.shared.tail();
        tail.last.is_some() || tail.vote.is_some()
    }

    pub fn capacity(&self) -> LogCapacity {
        LogCapacity::new(Arc::clone(&self.shared.disk))
    }

    /// The health of the disk, as the writer of the log sees it.
    pub fn health(&self) -> DiskHealth {
        self.shared.health.clone()
    }

    /// Has the writer sync the disk once, though there is nothing to write, to see how long it takes. Does nothing if
    /// the writer is busy: it learns the same from its work.
    pub(crate) fn probe(&self) {
        let _ = self.queue.try_send(Op::Probe);
    }

    /// The measure of how urgent a snapshot is.
    pub fn pressure(&self) -> Arc<SnapshotPressure> {
        Arc::clone(&self.shared.pressure)
    }

    /// The last entry that was purged.
    pub fn purged(&self) -> Option<LogId> {
        self.shared.tail().purged
    }

    /// Whether exactly this entry is (or was, and was purged as the last) part of the log.
    pub fn contains(&self, id: LogId) -> io::Result<bool> {
        if self.purged() == Some(id) {
            return Ok(true);
        }
        let found = self.shared.read(id.index, id.index.saturating_add(1), usize::MAX)?;
        Ok(found.first().is_some_and(|entry| entry.log_id == id))
    }

    /// Writes what is pending and releases the file. Later operations fail.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.queue.send(Op::Close { reply }).await.is_ok() {
            // An error means that the writer ended in another way, so the log is closed too.
            let _ = closed.await;
        }
    }

    async fn read_blocking(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        if let Some(entries) = self.shared.read_recent(start, end, bytes_max) {
            return Ok(entries);
        }
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.read(start, end, bytes_max)).await.map_err(io::Error::other)?
    }
}

/// Half-open bounds of a range of indexes.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

fn encode(entry: LogEntry) -> io::Result<Encoded> {
    let payload = persisted::encode_entry(&entry).map_err(io::Error::other)?;
    let frame = frame::seal(&entry.log_id.index.to_be_bytes(), &payload);
    Ok(Encoded { entry: Arc::new(entry), frame })
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log is closed, or its disk failed")
}

// === impl SharedLog ===

impl SharedLog {
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers from memory alone, if that is possible.
    fn read_recent(&self, start: u64, end: u64, bytes_max: usize) -> Option<Vec<LogEntry>> {
        let plan = self.tail().plan(start, end, bytes_max);
        plan.stored.is_empty().then(|| plan.recent.iter().map(|entry| LogEntry::clone(entry)).collect())
    }

    fn read(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        for _ in 0..READ_ATTEMPTS_MAX {
            let plan = self.tail().plan(start, end, bytes_max);
            let (mut entries, complete) = self.read_stored(plan.stored.start, plan.stored.end, bytes_max)?;
            let (first, truncations) = {
                let tail = self.tail();
                (tail.first(), tail.truncations())
            };
            if truncations != plan.truncations {
                continue;
            }
            // A purge may have come in between; the entries it took are not missing.
            let expected = plan.stored.start.max(first);
            entries.retain(|entry| entry.log_id.index >= expected);
            check_gapless(&entries, expected, plan.stored.end, complete)?;
            if complete {
                entries.extend(
                    plan.recent.iter().map(|entry| LogEntry::clone(entry)).filter(|entry| entry.log_id.index >= first),
                );
            }
            return Ok(entries);
        }
        Err(io::Error::other("the log was truncated again and again while it was read"))
    }

    /// Entries from the database, and whether all of them fit within the bound on bytes.
    fn read_stored(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<(Vec<LogEntry>, bool)> {
        if start >= end {
            return Ok((Vec::new(), true));
        }
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let transaction = database.as_ref().ok_or_else(closed)?.begin_read().map_err(io::Error::other)?;
        let log = transaction.open_table(tables::LOG).map_err(io::Error::other)?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for record in log.range(start..end).map_err(io::Error::other)? {
            let (index, frame) = record.map_err(io::Error::other)?;
            bytes += frame.value().len();
            if bytes > bytes_max && !entries.is_empty() {
                return Ok((entries, false));
            }
            entries.push(tables::decode_entry(index.value(), frame.value())?);
        }
        Ok((entries, bytes <= bytes_max))
    }
}

/// Entries that are read are sent to other replicas and applied, so a hole must be found here.
fn check_gapless(entries: &[LogEntry], start: u64, end: u64, complete: bool) -> io::Result<()> {
    let mut expected = start;
    for entry in entries {
        if entry.log_id.index != expected {
            break;
        }
        expected += 1;
    }
    let read_all = expected - start == entries.len() as u64;
    if read_all && (!complete || expected >= end) {
        return Ok(());
    }
    let text = format!("the log is damaged: entry {expected} of {start}..{end} is missing");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

// === openraft's storage traits ===

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<LogEntry>> {
        let (start, end) = bounds(&range);
        self.read_blocking(start, end, usize::MAX).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.tail().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        self.read_blocking(start, end, MESSAGE_BYTES_MAX).await
    }

    /// A replica far behind applies its whole backlog through this: page by page, never all at once.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = io::Result<LogEntry>> + Send
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        let (start, end) = bounds(&range);
        let store = self.clone();
        let pages = stream::unfold((store, start, false), move |(store, next, failed)| async move {
            if next >= end || failed {
                return None;
            }
            match store.read_blocking(next, end, MESSAGE_BYTES_MAX).await {
                Ok(page) => {
                    let last = page.last()?.log_id.index;
                    let page: Vec<_> = page.into_iter().map(Ok).collect();
                    Some((page, (store, last + 1, false)))
                }
                Err(error) => Some((vec![Err(error)], (store, next, true))),
            }
        });
        Box::pin(pages.flat_map(stream::iter))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let tail = self.shared.tail();
        Ok(LogState { last_purged_log_id: tail.purged, last_log_id: tail.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (reply, saved) = oneshot::channel();
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        {
            let mut tail = self.shared.tail();
            tail.vote = Some(*vote);
            slot.send(Op::Vote { vote: *vote, reply });
        }
        saved.await.map_err(|_| closed())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        let mut tail = self.shared.tail();
        tail.committed = Some(committed);
        slot.send(Op::Committed { committed });
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.tail().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        let entries = entries.into_iter().map(encode).collect::<io::Result<Vec<_>>>()?;
        let bytes: usize = entries.iter().map(|encoded| encoded.frame.len()).sum();
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(ROOM_UNITS).min(ROOM_UNITS);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| closed())?;
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        // Queued under the lock: entries that become visible first are written first.
        let mut tail = self.shared.tail();
        let number = tail.append(&entries)?;
        let frames = entries.into_iter().map(|encoded| (encoded.entry.log_id.index, encoded.frame)).collect();
        slot.send(Op::Append(Append { number, frames, flushed: callback, room }));
        self.shared.pressure.appended(bytes as u64);
        Ok(())
    }

    /// Waits for the disk: a snapshot that replaces a truncated tail must never meet that tail again.
    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        {
            let mut tail = self.shared.tail();
            let Some(from) = tail.truncate_after(last_log_id) else { return Ok(()) };
            slot.send(Op::Truncate { from, reply });
        }
        done.await.map_err(|_| closed())
    }

    /// Does not wait: a purge that is lost leaves entries that are covered by a durable snapshot.
    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        let slot = self.queue.reserve().await.map_err(|_| closed())?;
        let mut tail = self.shared.tail();
        if tail.purged >= Some(log_id) {
            return Ok(());
        }
        tail.purge(log_id);
        slot.send(Op::Purge { upto: log_id });
        Ok(())
    }
}
