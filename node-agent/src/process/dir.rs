//! Directory of a pod. Its name is the pod's uid, never a name from outside.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::pods::PodUid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodDir(PathBuf);

impl PodDir {
    pub(super) fn new(pods: &Path, uid: PodUid) -> Self {
        Self(pods.join(uid.to_string()))
    }

    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// The pod's shim holds this lock for as long as it lives; an agent tests it to learn whether it does.
    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(super) fn log(&self, container: &str) -> PathBuf {
        self.logs().join(format!("{container}.log"))
    }

    /// The shim's own log.
    pub(super) fn shim_log(&self) -> PathBuf {
        self.0.join("shim.log")
    }

    /// Calls `used` with the socket's path. Socket addresses are short and this directory may be deep, so the path
    /// names it by a file descriptor.
    pub(super) fn with_socket<T>(&self, used: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let dir = File::open(&self.0)?;
        used(Path::new(&format!("/proc/self/fd/{}/shim.sock", dir.as_raw_fd())))
    }
}
