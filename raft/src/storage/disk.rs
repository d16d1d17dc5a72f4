//! Disk: the interface through which everything durable goes.
//!
//! A [`Disk`] is one flat directory of files. The real one ([`real::RealDisk`]) is a directory of the
//! operating system; the simulated one ([`sim::SimDisk`]) can withhold syncs, lose what was not synced,
//! run full and flip bits, so that tests can prove what an acknowledgement is worth.
//!
//! The rules are those of POSIX: a write is durable after the file's sync, a creation, rename or removal
//! after the directory's. The two are independent.

pub mod real;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;

/// A directory of files.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files, in ascending order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file. Replaces `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Files that are still open stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// The number of bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The directory as an operator would name it.
    fn location(&self) -> String;

    fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.list()?.iter().any(|present| present == name))
    }
}

/// An open file. Reads and writes name their offset, so a handle can be shared.
pub trait DiskFile: Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;
    /// Fills `out` or fails.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Sets the length. New bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file's content and length durable.
    fn sync(&self) -> io::Result<()>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file with the interface that redb wants.
#[derive(Debug)]
pub struct DatabaseFile(pub Arc<dyn DiskFile>);

impl StorageBackend for DatabaseFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}

/// A file as a stream of bytes to write.
#[derive(Debug)]
pub struct Appender {
    file: Arc<dyn DiskFile>,
    offset: u64,
}

// === impl Appender ===

impl Appender {
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, offset: 0 }
    }

    pub fn written(&self) -> u64 {
        self.offset
    }
}

impl io::Write for Appender {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.offset, data)?;
        self.offset += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file as a stream of bytes to read.
#[derive(Debug)]
pub struct Scanner {
    file: Arc<dyn DiskFile>,
    offset: u64,
    len: u64,
}

// === impl Scanner ===

impl Scanner {
    pub fn new(file: Arc<dyn DiskFile>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, offset: 0, len })
    }
}

impl io::Read for Scanner {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.offset).unwrap_or(usize::MAX);
        let count = left.min(out.len());
        self.file.read_at(self.offset, &mut out[..count])?;
        self.offset += count as u64;
        Ok(count)
    }
}
