//! One look at the machine: how much is left of what can run short.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::signal::Signal;
use crate::facts::Filesystem;
use crate::facts::file::Root;
use crate::facts::memory::{MEMINFO, Memory};

const PID_MAX: &str = "/proc/sys/kernel/pid_max";
const THREADS_MAX: &str = "/proc/sys/kernel/threads-max";
const LOADAVG: &str = "/proc/loadavg";
const NOT_YET: &str = "the machine has not been looked at yet";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub available: u64,
    pub capacity: u64,
}

/// Each part is there, or the reason why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub memory: Reading<Level>,
    pub pids: Reading<Level>,
    pub nodefs: Reading<Filesystem>,
    /// The same as `nodefs` where there is one filesystem for both.
    pub imagefs: Reading<Filesystem>,
}

pub type Reading<T> = Result<T, String>;

/// What a filesystem answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Nodefs(Reading<Filesystem>),
    Imagefs(Reading<Filesystem>),
}

/// How a filesystem is asked; tests have some that never answer.
pub(super) type Gauge = Arc<dyn Fn(&Path) -> io::Result<Filesystem> + Send + Sync>;

/// What to look at.
#[derive(Clone)]
pub(super) struct Subjects {
    pub(super) root: Root,
    pub(super) nodefs: PathBuf,
    /// Absent if it is the same.
    pub(super) imagefs: Option<PathBuf>,
    pub(super) gauge: Gauge,
}

// === impl Sample ===

impl Sample {
    /// Before anything was read.
    pub(super) fn empty() -> Self {
        let unread = NOT_YET.to_owned();
        Self {
            memory: Err(unread.clone()),
            pids: Err(unread.clone()),
            nodefs: Err(unread.clone()),
            imagefs: Err(unread),
        }
    }

    pub fn level(&self, signal: Signal) -> Result<Level, &str> {
        match signal {
            Signal::MemoryAvailable => of(&self.memory, |level| *level),
            Signal::PidAvailable => of(&self.pids, |level| *level),
            Signal::NodefsAvailable => of(&self.nodefs, bytes),
            Signal::NodefsInodesFree => of(&self.nodefs, inodes),
            Signal::ImagefsAvailable => of(&self.imagefs, bytes),
            Signal::ImagefsInodesFree => of(&self.imagefs, inodes),
        }
    }

    pub(super) fn put(&mut self, part: Part) {
        match part {
            Part::Nodefs(nodefs) => self.nodefs = nodefs,
            Part::Imagefs(imagefs) => self.imagefs = imagefs,
        }
    }
}

fn of<T>(reading: &Reading<T>, level: fn(&T) -> Level) -> Result<Level, &str> {
    reading.as_ref().map(level).map_err(String::as_str)
}

fn bytes(filesystem: &Filesystem) -> Level {
    Level { available: filesystem.available, capacity: filesystem.capacity }
}

/// A filesystem that makes inodes as needed never runs short of them.
fn inodes(filesystem: &Filesystem) -> Level {
    match filesystem.inodes {
        0 => Level { available: u64::MAX, capacity: u64::MAX },
        capacity => Level { available: filesystem.inodes_free, capacity },
    }
}

// === impl Subjects ===

impl Subjects {
    /// What the kernel knows. The filesystems count as silent until they are heard.
    pub(super) fn look_at_kernel(&self) -> Sample {
        let silent = |path: &Path| Err(format!("{}: its filesystem does not answer", path.display()));
        Sample {
            memory: memory(&self.root),
            pids: pids(&self.root),
            nodefs: silent(&self.nodefs),
            imagefs: silent(self.imagefs.as_deref().unwrap_or(&self.nodefs)),
        }
    }

    /// Hands out each answer as soon as it is known, and may never return.
    pub(super) fn look_at_filesystems(&self, mut hand_out: impl FnMut(Part)) {
        let nodefs = self.measure(&self.nodefs);
        hand_out(Part::Nodefs(nodefs.clone()));
        hand_out(Part::Imagefs(self.imagefs.as_deref().map_or(nodefs, |path| self.measure(path))));
    }

    fn measure(&self, path: &Path) -> Reading<Filesystem> {
        (self.gauge)(path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn memory(root: &Root) -> Reading<Level> {
    let memory = Memory::read(root).map_err(|error| format!("{}: {error}", root.path(MEMINFO).display()))?;
    Ok(Level { available: memory.available, capacity: memory.total })
}

/// Threads use up process ids too, so the smaller of both limits counts, and so do all threads.
fn pids(root: &Root) -> Reading<Level> {
    let number = |path| root.number(path).map_err(|error| format!("{}: {error}", root.path(path).display()));
    let capacity = number(PID_MAX)?.min(number(THREADS_MAX)?);
    let load = root.line(LOADAVG).map_err(|error| format!("{}: {error}", root.path(LOADAVG).display()))?;
    let threads =
        threads(&load).ok_or_else(|| format!("{}: no thread count in {load:?}", root.path(LOADAVG).display()))?;
    Ok(Level { available: capacity.saturating_sub(threads), capacity })
}

/// The second number of `runnable/existing`, the fourth word.
fn threads(load: &str) -> Option<u64> {
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = Root::new(tree.path());
        (tree, root)
    }

    #[test]
    fn process_ids_are_what_the_smaller_limit_leaves_to_the_threads_that_exist() {
        let cases = [
            ("32768\n", "1000\n", "0.1 0.2 0.3 2/214 99\n", Ok((786, 1000))),
            ("500\n", "1000\n", "0.1 0.2 0.3 2/214 99\n", Ok((286, 500))),
            ("100\n", "1000\n", "0.1 0.2 0.3 2/214 99\n", Ok((0, 100))),
            ("many\n", "1000\n", "0.1 0.2 0.3 2/214 99\n", Err("pid_max: \"many\" is not a number")),
            ("100\n", "1000\n", "0.1\n", Err("loadavg: no thread count in \"0.1\"")),
        ];
        for (pid_max, threads_max, load, expected) in cases {
            let files = [
                ("proc/sys/kernel/pid_max", pid_max),
                ("proc/sys/kernel/threads-max", threads_max),
                ("proc/loadavg", load),
            ];
            let (_tree, root) = machine(&files);
            match (pids(&root), expected) {
                (Ok(level), Ok(expected)) => assert_eq!((level.available, level.capacity), expected),
                (Err(reason), Err(expected)) => assert!(reason.ends_with(expected), "{reason}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_says_where_it_should_be() {
        let (tree, root) = machine(&[]);
        let reason = memory(&root).unwrap_err();
        assert!(reason.starts_with(&tree.path().join("proc/meminfo").display().to_string()), "{reason}");
    }

    #[test]
    fn a_filesystem_without_a_number_of_inodes_has_enough_of_them() {
        let filesystem = Filesystem { capacity: 10, available: 5, inodes: 0, inodes_free: 0 };
        assert_eq!(inodes(&filesystem).available, u64::MAX);
    }
}
