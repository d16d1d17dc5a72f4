//! Requests of a session's owner. They are level-triggered: only the newest state counts.

/// Whether the agent works. Real agents are always live; simulated ones can hang or die.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AgentMode {
    #[default]
    Live,
    /// Hung: the connection stays open, and nothing is read or sent.
    Silent,
    /// Without power: the connection is gone and no new one is opened.
    Dead,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnerRequests {
    pub(super) mode: AgentMode,
    /// How often a changed status was announced.
    pub(super) reports: u64,
    /// How often there was a new certificate.
    pub(super) renewals: u64,
    pub(super) stopping: bool,
}
