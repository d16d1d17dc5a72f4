//! Metrics of the replicated state.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;

use super::gauge;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateFigures {
    pub nodes: u64,
    pub nodes_ready: u64,
    pub revision: u64,
    /// Time since the cluster was formed, as the cluster counts it.
    pub cluster_time: Duration,
}

impl StateFigures {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        gauge(encoder, ("muster_nodes", "Nodes in the state of this replica."), self.nodes as f64)?;
        gauge(encoder, ("muster_nodes_ready", "Those of them that are Ready."), self.nodes_ready as f64)?;
        let revision = ("muster_state_revision", "The revision of the state of this replica.");
        gauge(encoder, revision, self.revision as f64)?;
        let time = ("muster_cluster_time_seconds", "The time of the last applied command, as the cluster counts it.");
        gauge(encoder, time, self.cluster_time.as_secs_f64())
    }
}
