//! Handle to one snapshot.

use std::fmt;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::Stream;
use muster_lifecycle::state::State;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::format::{SnapshotError, SnapshotHeader, read_snapshot};
use crate::storage::disk::{Disk, DiskFile, Scanner};
use crate::types::LogId;

/// The bytes in one message of a transfer.
const PIECE_BYTES: usize = 512 * 1024;
/// The pieces read before they are sent.
const READ_AHEAD: usize = 2;
const BUFFER_BYTES: usize = 256 * 1024;

/// Cheap to clone. Stays readable when a newer snapshot replaces the file.
#[derive(Clone)]
pub struct SnapshotFile {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn DiskFile>,
    name: String,
    header: SnapshotHeader,
    len: u64,
    arrival: Option<Arrival>,
}

/// The extra data of a snapshot that was received and not yet installed.
pub(super) struct Arrival {
    pub(super) temporary: Temporary,
    pub(super) state: State,
}

/// A file that is removed when its last user drops it, unless it is kept.
pub(super) struct Temporary {
    disk: Arc<dyn Disk>,
    name: String,
    kept: AtomicBool,
}

/// The content of a snapshot, piece by piece.
#[derive(Debug)]
pub struct SnapshotChunks {
    file: Arc<dyn DiskFile>,
    offset: u64,
    len: u64,
}

/// Reads and verifies a snapshot.
pub(super) fn load(file: &Arc<dyn DiskFile>) -> Result<(SnapshotHeader, State), SnapshotError> {
    read_snapshot(BufReader::with_capacity(BUFFER_BYTES, Scanner::new(Arc::clone(file))?))
}

// === impl SnapshotFile ===

impl SnapshotFile {
    pub(super) fn new(file: Arc<dyn DiskFile>, name: String, header: SnapshotHeader, len: u64) -> Self {
        Self { inner: Arc::new(Inner { file, name, header, len, arrival: None }) }
    }

    /// The same snapshot, not yet installed.
    pub(super) fn arriving(&self, arrival: Arrival) -> Self {
        let Inner { file, name, header, len, arrival: _ } = &*self.inner;
        let (file, name, header) = (Arc::clone(file), name.clone(), header.clone());
        Self { inner: Arc::new(Inner { file, name, header, len: *len, arrival: Some(arrival) }) }
    }

    /// The same snapshot, without the data that installing it needed.
    pub(super) fn settled(&self) -> Self {
        let inner = &*self.inner;
        Self::new(Arc::clone(&inner.file), inner.name.clone(), inner.header.clone(), inner.len)
    }

    pub fn header(&self) -> &SnapshotHeader {
        &self.inner.header
    }

    pub fn log_id(&self) -> Option<LogId> {
        self.inner.header.log_id()
    }

    /// The size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Never true: even an empty state has a header.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// The content for sending. It does not depend on the life of this handle.
    pub fn chunks(&self) -> SnapshotChunks {
        SnapshotChunks { file: Arc::clone(&self.inner.file), offset: 0, len: self.inner.len }
    }

    /// The content as a stream, read ahead by a thread of its own: a slow disk must not hold up heartbeats.
    pub fn stream(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let chunks = self.chunks();
        let (pieces, stream) = mpsc::channel(READ_AHEAD);
        tokio::task::spawn_blocking(move || {
            for piece in chunks {
                // The receiver of the stream may have gone away.
                if pieces.blocking_send(piece).is_err() {
                    return;
                }
            }
        });
        ReceiverStream::new(stream)
    }

    /// Reads and verifies the content.
    pub fn load(&self) -> Result<(SnapshotHeader, State), SnapshotError> {
        load(&self.inner.file)
    }

    pub(super) fn name(&self) -> &str {
        &self.inner.name
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.file, &other.inner.file)
    }

    /// The data needed to install it on `disk`, if it arrived there.
    pub(super) fn arrival_on(&self, disk: &Arc<dyn Disk>) -> Option<&Arrival> {
        self.inner.arrival.as_ref().filter(|arrival| Arc::ptr_eq(&arrival.temporary.disk, disk))
    }
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotFile").field("name", &self.inner.name).field("len", &self.inner.len).finish()
    }
}

// === impl SnapshotChunks ===

impl Iterator for SnapshotChunks {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.offset >= self.len {
            return None;
        }
        let left = usize::try_from(self.len - self.offset).unwrap_or(usize::MAX);
        let mut piece = vec![0; left.min(PIECE_BYTES)];
        let read = self.file.read_at(self.offset, &mut piece);
        // A failed read ends the sequence: later pieces would not follow the earlier ones.
        self.offset = if read.is_ok() { self.offset + piece.len() as u64 } else { self.len };
        Some(read.map(|()| Bytes::from(piece)))
    }
}

// === impl Temporary ===

impl Temporary {
    pub(super) fn new(disk: Arc<dyn Disk>, name: String) -> Self {
        Self { disk, name, kept: AtomicBool::new(false) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Keeps the file: it has another name now.
    pub(super) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.disk.remove(&self.name) {
            tracing::debug!(%error, name = self.name, "an unfinished snapshot was not removed; the next start removes it");
        }
    }
}
