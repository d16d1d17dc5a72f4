//! Real disk: a directory of the operating system, owned by one process at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::{Disk, DiskFile};

/// The file that is locked while a process uses the directory. It has no content.
const LOCK_FILE: &str = "lock";
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

#[derive(Debug, Error)]
pub enum DiskError {
    #[error("data directory {} cannot be prepared: check that its parent exists and that this user may write there", dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    #[error("data directory {} is in use by another process: stop that process, or give this replica a directory of its own", dir.display())]
    InUse { dir: PathBuf },
}

/// A directory. Its files are readable by their owner only: they hold the state of a whole fleet.
#[derive(Debug)]
pub struct RealDisk {
    dir: PathBuf,
    /// The directory, kept open for syncing its entries.
    handle: File,
    /// Unlocked by the system when the process ends, however it ends.
    _lock: File,
}

#[derive(Debug)]
struct RealFile(File);

// === impl RealDisk ===

impl RealDisk {
    /// Takes the directory, creating it if it is missing.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Arc<Self>, DiskError> {
        let dir = dir.into();
        let (handle, lock) = match prepare(&dir) {
            Ok(prepared) => prepared,
            Err(source) => return Err(DiskError::Directory { dir, source }),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Arc::new(Self { dir, handle, _lock: lock })),
            Err(TryLockError::WouldBlock) => Err(DiskError::InUse { dir }),
            Err(TryLockError::Error(source)) => Err(DiskError::Directory { dir, source }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

fn prepare(dir: &Path) -> io::Result<(File, File)> {
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
        sync_parent(dir)?;
    }
    fs::set_permissions(dir, Permissions::from_mode(DIR_MODE))?;
    let lock = options().create(true).truncate(false).open(dir.join(LOCK_FILE))?;
    Ok((File::open(dir)?, lock))
}

/// Makes the directory itself durable: if it vanished in a power cut, a fresh vote would vanish with it.
fn sync_parent(dir: &Path) -> io::Result<()> {
    match dir.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(FILE_MODE);
    options
}

impl Disk for RealDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(options().open(self.dir.join(name))?)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(options().create(true).truncate(true).open(self.dir.join(name))?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let volume = rustix::fs::fstatvfs(&self.handle)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    fn location(&self) -> String {
        self.dir.display().to_string()
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        // `sync_data` includes the length, which is all the metadata that reading back needs.
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = RealDisk::open(dir.path()).unwrap();
        let error = RealDisk::open(dir.path()).unwrap_err();
        assert!(matches!(error, DiskError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("stop that process"), "{error}");
        drop(first);
        RealDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn directory_and_files_belong_to_their_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        let disk = RealDisk::open(&dir).unwrap();
        disk.create("file").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("file")), 0o600);
        assert_eq!(disk.list().unwrap(), ["file", "lock"]);
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_named() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("file"), "").unwrap();
        let error = RealDisk::open(parent.path().join("file/sub")).unwrap_err();
        assert!(error.to_string().contains("file/sub"), "{error}");
    }
}
