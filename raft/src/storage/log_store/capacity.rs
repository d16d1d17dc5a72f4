//! LogCapacity of the disk: whether there is room for more proposals.
//!
//! A log that runs into a full disk in the middle of a write must end the process. So proposals are refused before
//! that, while there is still room for everything that is already on its way.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::storage::disk::Disk;

/// Free space below which no new proposals are accepted.
pub const RESERVE_BYTES: u64 = 64 * 1024 * 1024;

/// Compares the free space of a disk with the reserve.
#[derive(Clone, Debug)]
pub struct LogCapacity {
    disk: Arc<dyn Disk>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the disk under {location} is nearly full: {free} bytes are free, {RESERVE_BYTES} are kept in reserve; free some \
     space, writes resume by themselves"
)]
pub struct DiskFull {
    pub location: String,
    pub free: u64,
}

// === impl LogCapacity ===

impl LogCapacity {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// Refuses while the reserve is touched. A disk that cannot say how full it is counts as having room: the write
    /// itself will fail if it has not.
    pub fn check(&self) -> Result<(), DiskFull> {
        match self.free_bytes() {
            Ok(free) if free < RESERVE_BYTES => Err(DiskFull { location: self.disk.location(), free }),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
