//! Usage of a filesystem.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;

/// The filesystem of a directory: bytes and inodes, as `df` counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filesystem {
    pub capacity: u64,
    /// Available to users other than root.
    pub available: u64,
    /// 0 where the filesystem creates inodes as needed.
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Filesystem {
    /// May block for as long as a dead mount does.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let figures = statvfs(directory)?;
        Ok(Self {
            capacity: figures.f_blocks.saturating_mul(figures.f_frsize),
            available: figures.f_bavail.saturating_mul(figures.f_frsize),
            inodes: figures.f_files,
            inodes_free: figures.f_ffree,
        })
    }
}
