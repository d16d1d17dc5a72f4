//! How full a filesystem is.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;

/// The filesystem that holds a directory: bytes and inodes, as `df` counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filesystem {
    pub capacity: u64,
    /// For whoever is not root, which leaves room for those who have to clean up.
    pub available: u64,
    /// None where inodes are made as needed.
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Filesystem {
    /// May wait for as long as a dead mount likes.
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
