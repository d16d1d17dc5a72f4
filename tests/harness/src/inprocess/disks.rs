//! A real disk that can say that it is nearly full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_raft::disk::{Disk, DiskFile};

#[derive(Debug)]
pub struct FillableDisk {
    inner: Arc<dyn Disk>,
    full: AtomicBool,
}

// === impl FillableDisk ===

impl FillableDisk {
    pub fn over(inner: Arc<dyn Disk>) -> Self {
        Self { inner, full: AtomicBool::new(false) }
    }

    /// While on, the disk says that nothing is left, and takes what is written all the same.
    pub fn fill(&self, on: bool) {
        self.full.store(on, Ordering::SeqCst);
    }
}

impl Disk for FillableDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        if self.full.load(Ordering::SeqCst) { Ok(0) } else { self.inner.free_bytes() }
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}
