//! Durable files: written as a whole or not at all, and readable by their owner only unless asked otherwise.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Readable and writable by the owner.
const PRIVATE: u32 = 0o600;

/// Whether a write survives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Synced,
    Lazy,
}

/// Replaces the file. A reader sees the old or the new bytes, never a mixture. Each path has one writer.
pub(crate) fn write(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    write_with_mode(path, bytes, PRIVATE, durability)
}

/// As [`write`], for a file that others may read.
pub(crate) fn write_with_mode(path: &Path, bytes: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let fresh = with_suffix(path, ".new");
    // What a process left there when it ended in between may have another mode, or be a link to another file.
    remove(&fresh)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
    file.write_all(bytes)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    std::fs::rename(&fresh, path)?;
    match path.parent() {
        Some(dir) if durability == Durability::Synced => File::open(dir)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

/// None: the file does not exist. A file above the limit is an error.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {bytes_max} bytes"))),
        false => Ok(Some(bytes)),
    }
}

/// A file that is not there is removed already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)
}

pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Locks until the file is dropped or the process ends. None: another process holds the lock.
pub(crate) fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_atomically_private_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(read(&path, 9).unwrap(), None);
        for text in ["first", "second"] {
            write(&path, text.as_bytes(), Durability::Synced).unwrap();
            assert_eq!(read(&path, 9).unwrap().unwrap(), text.as_bytes());
        }
        assert!(read(&path, 5).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();
        assert!(held.is_some() && lock(&path).unwrap().is_none());
        drop(held);
        assert!(lock(&path).unwrap().is_some());
    }
}
