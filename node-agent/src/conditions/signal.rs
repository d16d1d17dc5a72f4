//! Eviction signals in upstream's terms.

use std::fmt;

use muster_lifecycle::node::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

/// The conditions that signals turn on (P-3), in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureKind {
    Memory,
    Disk,
    Pid,
}

// === impl Signal ===

impl Signal {
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    pub fn pressure(self) -> PressureKind {
        match self {
            Self::MemoryAvailable => PressureKind::Memory,
            Self::NodefsAvailable | Self::NodefsInodesFree | Self::ImagefsAvailable | Self::ImagefsInodesFree => {
                PressureKind::Disk
            }
            Self::PidAvailable => PressureKind::Pid,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl PressureKind ===

impl PressureKind {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pid];

    pub fn condition(self) -> &'static str {
        match self {
            Self::Memory => MEMORY_PRESSURE,
            Self::Disk => DISK_PRESSURE,
            Self::Pid => PID_PRESSURE,
        }
    }

    /// Reason and message (S-7).
    pub fn words(self, pressed: bool) -> (&'static str, &'static str) {
        match (self, pressed) {
            (Self::Memory, true) => ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            (Self::Memory, false) => ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            (Self::Disk, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            (Self::Disk, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            (Self::Pid, true) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            (Self::Pid, false) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        }
    }
}
