//! Metrics of consensus as this replica sees it, and the outcomes of its proposals.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{gauge, registered};

#[derive(Debug)]
pub struct RaftMetrics {
    /// Counted by every replica that sees a leader it did not see before.
    pub leader_changes: Counter,
    proposals: Family<Proposal, Counter>,
}

/// The outcome of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProposalResult {
    Accepted,
    /// The state machine rejected it.
    Rejected,
    /// It was not committed, as far as this replica knows.
    Failed,
}

/// Consensus at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RaftFigures {
    pub term: u64,
    pub is_leader: bool,
    pub applied_index: u64,
    pub last_log_index: u64,
    /// How long ago a quorum last confirmed this leader; only a leader knows.
    pub quorum_age: Option<Duration>,
    /// The disk is nearly full or slow, so that this replica leaves leading to the others.
    pub disk_in_trouble: bool,
    pub disk_free_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Proposal {
    operation: &'static str,
    outcome: ProposalResult,
}

// === impl RaftMetrics ===

impl RaftMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            leader_changes: registered(registry, "muster_raft_leader_changes", "Leaders seen that were new"),
            proposals: registered(registry, "muster_proposals", "Commands proposed here, by operation and outcome"),
        }
    }

    pub fn proposed(&self, operation: &'static str, outcome: ProposalResult) {
        self.proposals.get_or_create(&Proposal { operation, outcome }).inc();
    }
}

// === impl ProposalResult ===

impl EncodeLabelValue for ProposalResult {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let name = match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        };
        EncodeLabelValue::encode(&name, encoder)
    }
}

// === impl RaftFigures ===

impl RaftFigures {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let is_leader = f64::from(u8::from(self.is_leader));
        gauge(encoder, ("muster_raft_term", "The term this replica is in."), self.term as f64)?;
        gauge(encoder, ("muster_raft_is_leader", "Whether this replica leads."), is_leader)?;
        let applied = ("muster_raft_applied_index", "The last log entry that is part of the state.");
        gauge(encoder, applied, self.applied_index as f64)?;
        let last = ("muster_raft_last_log_index", "The last log entry this replica holds.");
        gauge(encoder, last, self.last_log_index as f64)?;
        let trouble = ("muster_disk_in_trouble", "Whether the disk under the log is nearly full or slow.");
        gauge(encoder, trouble, f64::from(u8::from(self.disk_in_trouble)))?;
        let free = ("muster_disk_free_bytes", "Free space on the disk under the log.");
        self.disk_free_bytes.map_or(Ok(()), |bytes| gauge(encoder, free, bytes as f64))?;
        let age = ("muster_raft_quorum_age_seconds", "Since when no quorum has confirmed this leader; leaders only.");
        self.quorum_age.map_or(Ok(()), |since| gauge(encoder, age, since.as_secs_f64()))
    }
}
