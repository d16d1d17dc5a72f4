//! What is on disk of a pod: its record, written by the agent before anything of it runs, and its state, written by its
//! shim whenever it changes. The state is also what a shim says to an agent that listens.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable::{self, Durability};
use crate::pods::{Phase, PodStatus};

/// Twice what a pod's manifest may have on the wire, and then some: JSON in JSON grows.
const RECORD_BYTES_MAX: u64 = 16 << 20;
pub(super) const STATE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the machine when it was started: nothing survives the next boot.
    pub(super) boot_id: String,
    pub(super) manifest: String,
    pub(super) settings: Settings,
}

/// What the shim needs to know beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) log_bytes: u64,
    pub(super) log_files: u32,
    pub(super) cgroup: Option<CgroupSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CgroupSettings {
    /// Of the pod.
    pub(super) pod: PathBuf,
    /// Where the shim itself lives.
    pub(super) home: PathBuf,
    /// Those that can be limited by.
    pub(super) controllers: Vec<String>,
    pub(super) pids_max: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) phase: String,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    pub(super) reason: String,
    pub(super) message: String,
    /// Nothing of it runs any more, nor will.
    pub(super) over: bool,
    /// It was ended by a signal to its shim and not by its agent, as a machine does that shuts down.
    #[serde(default)]
    pub(super) by_signal: bool,
    pub(super) containers: Vec<ContainerState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerState {
    pub(super) name: String,
    /// Of its process, while it runs.
    pub(super) pid: Option<i32>,
    pub(super) restarts: u32,
    /// How it ended last.
    pub(super) last: Option<String>,
}

// === impl Record ===

impl Record {
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        durable::write(path, &serde_json::to_vec(self)?, Durability::Synced)
    }

    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = durable::read(path, RECORD_BYTES_MAX)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(Into::into)
    }
}

// === impl State ===

impl State {
    pub(super) fn new(status: &PodStatus, over: bool, containers: Vec<ContainerState>) -> Self {
        let PodStatus { phase, ready, restarts, reason, message } = status.clone();
        Self { phase: phase.as_str().to_owned(), ready, restarts, reason, message, over, by_signal: false, containers }
    }

    pub(super) fn status(&self) -> PodStatus {
        let phase = Phase::parse(&self.phase).unwrap_or(Phase::Unknown);
        PodStatus { ready: self.ready, restarts: self.restarts, ..PodStatus::new(phase, &self.reason, &self.message) }
    }

    /// An end outlives a loss of power. Until then, the end of the machine is the end of the pod anyway.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let durability = if self.over { Durability::Synced } else { Durability::Lazy };
        durable::write(path, &serde_json::to_vec(self)?, durability)
    }

    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = durable::read(path, STATE_BYTES_MAX)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(Into::into)
    }

    /// One line.
    pub(super) fn to_line(&self) -> Option<String> {
        serde_json::to_string(self).ok().map(|line| line + "\n")
    }
}
