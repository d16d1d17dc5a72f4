//! What its owner wants of a session: level-triggered, so that only the newest counts.

/// How much of an agent is there. Real ones are always live; simulated ones play a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    #[default]
    Live,
    /// Hung: the connection stays open and nothing is read or said.
    Silent,
    /// Without power: the connection is gone and nobody makes another.
    Dead,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) presence: Presence,
    /// How often a changed status was announced.
    pub(super) reports: u64,
    /// How often there was a new certificate.
    pub(super) renewals: u64,
    pub(super) stopping: bool,
}
