//! How a pod is.

use crate::failure::quoted;

/// A reason is a word, and this is a long one.
const REASON_MAX: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodStatus {
    pub phase: Phase,
    pub ready: bool,
    pub restarts: u32,
    /// One word, for programs.
    pub reason: String,
    /// For people.
    pub message: String,
}

// === impl PodStatus ===

impl PodStatus {
    pub fn new(phase: Phase, reason: &str, message: &str) -> Self {
        Self { phase, ready: false, restarts: 0, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Running, and ready for work.
    pub fn ready() -> Self {
        Self { ready: true, ..Self::new(Phase::Running, "", "") }
    }

    /// What somebody else wrote is kept only in part, so that reports stay small.
    pub(super) fn clipped(self) -> Self {
        let reason = self.reason.chars().take(REASON_MAX).collect();
        Self { reason, message: quoted(&self.message), ..self }
    }

    /// The same, of a pod of which nothing runs any more: the fleet would wait for one that seems to go on.
    pub(super) fn ended(self) -> Self {
        let phase = match self.phase {
            Phase::Succeeded => Phase::Succeeded,
            Phase::Pending | Phase::Running | Phase::Failed | Phase::Unknown => Phase::Failed,
        };
        Self { phase, ready: false, ..self }
    }
}

// === impl Phase ===

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let phases = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];
        phases.into_iter().find(|phase| phase.as_str() == text)
    }
}
