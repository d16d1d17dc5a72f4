//! The directory of a pod. It is named by the pod's uid, never by a name from outside.

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

    /// Held by the pod's shim for as long as it lives: that is how an agent knows whether it does.
    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(super) fn log(&self, container: &str) -> PathBuf {
        self.logs().join(format!("{container}.log"))
    }

    /// What the shim has to say of itself.
    pub(super) fn shim_log(&self) -> PathBuf {
        self.0.join("shim.log")
    }

    /// Addresses of sockets are short and this directory may be deep, so that it is named by a descriptor.
    pub(super) fn with_socket<T>(&self, used: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let dir = File::open(&self.0)?;
        used(Path::new(&format!("/proc/self/fd/{}/shim.sock", dir.as_raw_fd())))
    }
}
