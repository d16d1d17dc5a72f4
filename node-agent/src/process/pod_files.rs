//! Files of a pod: its record, written by the agent before anything of it runs, and its state, written by its shim on
//! every change. The shim also sends the state to a connected agent.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable::{self, Durability};
use crate::pods::{LocalPodStatus, PodPhase};

/// More than twice the largest manifest on the wire: JSON inside JSON grows.
const RECORD_BYTES_MAX: u64 = 16 << 20;
pub(super) const STATE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PodRecord {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The machine's boot id when it started: no process survives the next boot.
    pub(super) boot_id: String,
    pub(super) manifest: String,
    pub(super) settings: ShimSettings,
}

/// What the shim needs beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShimSettings {
    pub(super) log_bytes: u64,
    pub(super) log_files: u32,
    pub(super) cgroup: Option<CgroupSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CgroupSettings {
    /// The pod's group.
    pub(super) pod: PathBuf,
    /// The shim's own group.
    pub(super) home: PathBuf,
    /// The controllers that can limit the pod.
    pub(super) controllers: Vec<String>,
    pub(super) pids_max: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShimState {
    pub(super) phase: String,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    pub(super) reason: String,
    pub(super) message: String,
    /// Nothing of it runs any more, nor will again.
    pub(super) over: bool,
    /// A signal to its shim ended it and not its agent, as when the machine shuts down.
    #[serde(default)]
    pub(super) by_signal: bool,
    pub(super) containers: Vec<ContainerState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerState {
    pub(super) name: String,
    /// The id of its process while it runs.
    pub(super) pid: Option<i32>,
    pub(super) restarts: u32,
    /// How it last ended.
    pub(super) last: Option<String>,
}

// === impl PodRecord ===

impl PodRecord {
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        durable::write(path, &serde_json::to_vec(self)?, Durability::Synced)
    }

    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = durable::read(path, RECORD_BYTES_MAX)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(Into::into)
    }
}

// === impl ShimState ===

impl ShimState {
    pub(super) fn new(status: &LocalPodStatus, over: bool, containers: Vec<ContainerState>) -> Self {
        let LocalPodStatus { phase, ready, restarts, reason, message } = status.clone();
        Self { phase: phase.as_str().to_owned(), ready, restarts, reason, message, over, by_signal: false, containers }
    }

    pub(super) fn status(&self) -> LocalPodStatus {
        let phase = self.phase.parse().unwrap_or(PodPhase::Unknown);
        LocalPodStatus {
            ready: self.ready,
            restarts: self.restarts,
            ..LocalPodStatus::new(phase, &self.reason, &self.message)
        }
    }

    /// Syncs an end to disk. Until then the end of the machine is the end of the pod.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let durability = if self.over { Durability::Synced } else { Durability::Lazy };
        durable::write(path, &serde_json::to_vec(self)?, durability)
    }

    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = durable::read(path, STATE_BYTES_MAX)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(Into::into)
    }

    /// The state as one line.
    pub(super) fn to_line(&self) -> Option<String> {
        serde_json::to_string(self).ok().map(|line| line + "\n")
    }
}
