//! Sample of the machine: how much is left of each resource that can run short.

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
const NOT_YET: &str = "the machine has not been sampled yet";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLevel {
    pub available: u64,
    pub capacity: u64,
}

/// Each part is a value, or the reason why it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSample {
    pub memory: Reading<ResourceLevel>,
    pub pids: Reading<ResourceLevel>,
    pub nodefs: Reading<Filesystem>,
    /// The same as `nodefs` where one filesystem serves both.
    pub imagefs: Reading<Filesystem>,
}

pub type Reading<T> = Result<T, String>;

/// The answer of a filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilesystemSample {
    Nodefs(Reading<Filesystem>),
    Imagefs(Reading<Filesystem>),
}

/// How to ask a filesystem; tests use some that never answer.
pub(super) type StatFilesystem = Arc<dyn Fn(&Path) -> io::Result<Filesystem> + Send + Sync>;

/// What to sample.
#[derive(Clone)]
pub(super) struct SampleSources {
    pub(super) root: Root,
    pub(super) nodefs: PathBuf,
    /// Absent if it is the same.
    pub(super) imagefs: Option<PathBuf>,
    pub(super) gauge: StatFilesystem,
}

// === impl MachineSample ===

impl MachineSample {
    /// Before the first sample.
    pub(super) fn empty() -> Self {
        let unread = NOT_YET.to_owned();
        Self {
            memory: Err(unread.clone()),
            pids: Err(unread.clone()),
            nodefs: Err(unread.clone()),
            imagefs: Err(unread),
        }
    }

    pub fn level(&self, signal: Signal) -> Result<ResourceLevel, &str> {
        match signal {
            Signal::MemoryAvailable => of(&self.memory, |level| *level),
            Signal::PidAvailable => of(&self.pids, |level| *level),
            Signal::NodefsAvailable => of(&self.nodefs, bytes),
            Signal::NodefsInodesFree => of(&self.nodefs, inodes),
            Signal::ImagefsAvailable => of(&self.imagefs, bytes),
            Signal::ImagefsInodesFree => of(&self.imagefs, inodes),
        }
    }

    pub(super) fn put(&mut self, part: FilesystemSample) {
        match part {
            FilesystemSample::Nodefs(nodefs) => self.nodefs = nodefs,
            FilesystemSample::Imagefs(imagefs) => self.imagefs = imagefs,
        }
    }
}

fn of<T>(reading: &Reading<T>, level: fn(&T) -> ResourceLevel) -> Result<ResourceLevel, &str> {
    reading.as_ref().map(level).map_err(String::as_str)
}

fn bytes(filesystem: &Filesystem) -> ResourceLevel {
    ResourceLevel { available: filesystem.available, capacity: filesystem.capacity }
}

/// A filesystem that creates inodes as needed never runs short of them.
fn inodes(filesystem: &Filesystem) -> ResourceLevel {
    match filesystem.inodes {
        0 => ResourceLevel { available: u64::MAX, capacity: u64::MAX },
        capacity => ResourceLevel { available: filesystem.inodes_free, capacity },
    }
}

// === impl SampleSources ===

impl SampleSources {
    /// Reads the kernel's figures. Filesystems count as not answering until they have answered.
    pub(super) fn read_kernel(&self) -> MachineSample {
        let silent = |path: &Path| Err(format!("{}: its filesystem does not answer", path.display()));
        MachineSample {
            memory: memory(&self.root),
            pids: pids(&self.root),
            nodefs: silent(&self.nodefs),
            imagefs: silent(self.imagefs.as_deref().unwrap_or(&self.nodefs)),
        }
    }

    /// Hands out each answer as soon as it is known. May never return.
    pub(super) fn read_filesystems(&self, mut hand_out: impl FnMut(FilesystemSample)) {
        let nodefs = self.measure(&self.nodefs);
        hand_out(FilesystemSample::Nodefs(nodefs.clone()));
        hand_out(FilesystemSample::Imagefs(self.imagefs.as_deref().map_or(nodefs, |path| self.measure(path))));
    }

    fn measure(&self, path: &Path) -> Reading<Filesystem> {
        (self.gauge)(path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn memory(root: &Root) -> Reading<ResourceLevel> {
    let memory = Memory::read(root).map_err(|error| format!("{}: {error}", root.path(MEMINFO).display()))?;
    Ok(ResourceLevel { available: memory.available, capacity: memory.total })
}

/// Threads use process ids too, so the smaller of both limits counts, and all threads count.
fn pids(root: &Root) -> Reading<ResourceLevel> {
    let number = |path| root.number(path).map_err(|error| format!("{}: {error}", root.path(path).display()));
    let capacity = number(PID_MAX)?.min(number(THREADS_MAX)?);
    let load = root.line(LOADAVG).map_err(|error| format!("{}: {error}", root.path(LOADAVG).display()))?;
    let threads =
        threads(&load).ok_or_else(|| format!("{}: no thread count in {load:?}", root.path(LOADAVG).display()))?;
    Ok(ResourceLevel { available: capacity.saturating_sub(threads), capacity })
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
    fn available_process_ids_are_the_smaller_limit_minus_all_threads() {
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
    fn an_unreadable_file_is_named_with_its_path() {
        let (tree, root) = machine(&[]);
        let reason = memory(&root).unwrap_err();
        assert!(reason.starts_with(&tree.path().join("proc/meminfo").display().to_string()), "{reason}");
    }

    #[test]
    fn a_filesystem_without_an_inode_count_is_never_short_of_inodes() {
        let filesystem = Filesystem { capacity: 10, available: 5, inodes: 0, inodes_free: 0 };
        assert_eq!(inodes(&filesystem).available, u64::MAX);
    }
}
