//! Status of a pod, as its runtime sees it.

pub use muster_lifecycle::pod::Phase as PodPhase;

use crate::connection::quoted;

/// A reason is one word; this is a long one.
const REASON_MAX: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPodStatus {
    pub phase: PodPhase,
    pub ready: bool,
    pub restarts: u32,
    /// One word, for programs.
    pub reason: String,
    /// For operators.
    pub message: String,
}

// === impl LocalPodStatus ===

impl LocalPodStatus {
    pub fn new(phase: PodPhase, reason: &str, message: &str) -> Self {
        Self { phase, ready: false, restarts: 0, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Running and ready.
    pub fn ready() -> Self {
        Self { ready: true, ..Self::new(PodPhase::Running, "", "") }
    }

    /// Shortens texts that come from elsewhere, so that reports stay small.
    pub(super) fn clipped(self) -> Self {
        let reason = self.reason.chars().take(REASON_MAX).collect();
        Self { reason, message: quoted(&self.message), ..self }
    }

    /// The same for a pod of which nothing runs any more. The cluster would wait for ever for a pod that still seems to
    /// run.
    pub(super) fn ended(self) -> Self {
        let phase = match self.phase {
            PodPhase::Succeeded => PodPhase::Succeeded,
            PodPhase::Pending | PodPhase::Running | PodPhase::Failed | PodPhase::Unknown => PodPhase::Failed,
        };
        Self { phase, ready: false, ..self }
    }
}
