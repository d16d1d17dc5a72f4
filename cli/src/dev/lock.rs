//! The lock of a folder: one `muster dev` each. The kernel drops the lock with its holder, so a crash leaves nothing
//! to clean up.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::exit::Failure;

/// The lock is held as long as this value lives.
pub struct Lock {
    _file: File,
}

/// Enough for a process id.
const CONTENT_LIMIT: u64 = 32;

// === impl Lock ===

impl Lock {
    pub fn acquire(dir: &Path) -> Result<Self, Failure> {
        let path = path(dir);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display())).map_err(Failure::Other)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                file.set_len(0)?;
                write!(file, "{}", std::process::id())?;
                Ok(Self { _file: file })
            }
            Err(Errno::WOULDBLOCK) => Err(Failure::Conflict(format!(
                "`muster dev` (pid {}) already runs in {}; stop it with `muster dev stop`, or choose another --dir",
                pid_in(&mut file),
                dir.display()
            ))),
            Err(error) => Err(Failure::other(
                anyhow::Error::from(std::io::Error::from(error)).context(format!("cannot lock {}", path.display())),
            )),
        }
    }
}

/// The process that runs the cluster in `dir`, if one does.
pub fn holder(dir: &Path) -> Option<u32> {
    let mut file = File::open(path(dir)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(pid_in(&mut file)),
        Ok(()) | Err(_) => None,
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("dev.lock")
}

/// Zero if the holder has not written it yet.
fn pid_in(file: &mut File) -> u32 {
    let mut text = String::new();
    let read = file.take(CONTENT_LIMIT).read_to_string(&mut text);
    read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_and_told_the_first_ones_pid() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder(dir.path()), None);
        let lock = Lock::acquire(dir.path()).unwrap();
        assert_eq!(holder(dir.path()), Some(std::process::id()));
        let Err(refusal) = Lock::acquire(dir.path()) else { panic!("two holders") };
        assert!(refusal.to_string().contains(&format!("pid {}", std::process::id())), "{refusal}");
        drop(lock);
        assert_eq!(holder(dir.path()), None);
        assert!(Lock::acquire(dir.path()).is_ok());
    }

    #[test]
    fn a_file_left_by_a_crash_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(path(dir.path()), "4194304999").unwrap();
        assert!(Lock::acquire(dir.path()).is_ok());
    }
}
