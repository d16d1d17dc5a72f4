//! Witness of the log: the number of its transactions, kept outside of it.
//!
//! A database that keeps two versions of its root can be made to show the older one by a single flipped bit, and every
//! checksum in it would still be right. The newest vote would be gone without notice. So the log counts its
//! transactions, and a file beside it holds the count that was reached. A log that counts less than its witness has
//! lost something that was acknowledged.
//!
//! The witness is written after each transaction and before its acknowledgement, but its sync is never waited for.
//! After a power cut it may lag behind, which is harmless.

use std::io;
use std::sync::Arc;

use crate::storage::disk::{Disk, DiskFile};
use crate::storage::frame;

const WITNESS_FILE: &str = "log.witness";
const COUNT_BYTES: usize = size_of::<u64>();

#[derive(Debug)]
pub(super) struct Witness(Arc<dyn DiskFile>);

// === impl Witness ===

impl Witness {
    /// Creates the witness, durable except for its name.
    pub(super) fn create(disk: &Arc<dyn Disk>) -> io::Result<Self> {
        let witness = Self(disk.create(WITNESS_FILE)?);
        witness.write(0)?;
        witness.sync()?;
        Ok(witness)
    }

    /// The witness and its count; `None` if the file is missing or unreadable.
    pub(super) fn open(disk: &Arc<dyn Disk>) -> io::Result<(Self, Option<u64>)> {
        let present = disk.exists(WITNESS_FILE)?;
        let witness = Self(if present { disk.open(WITNESS_FILE)? } else { disk.create(WITNESS_FILE)? });
        let seen = witness.read()?;
        Ok((witness, seen))
    }

    pub(super) fn write(&self, count: u64) -> io::Result<()> {
        self.0.write_at(0, &frame::seal(WITNESS_FILE.as_bytes(), &count.to_le_bytes()))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn read(&self) -> io::Result<Option<u64>> {
        let length = frame::seal(WITNESS_FILE.as_bytes(), &[0; COUNT_BYTES]).len();
        if self.0.len()? < length as u64 {
            return Ok(None);
        }
        let mut stored = vec![0; length];
        self.0.read_at(0, &mut stored)?;
        let payload = frame::open(WITNESS_FILE.as_bytes(), &stored).ok();
        Ok(payload.and_then(|payload| payload.try_into().ok()).map(u64::from_le_bytes))
    }
}
