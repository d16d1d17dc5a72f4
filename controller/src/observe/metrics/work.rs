//! Metrics of pods and node addresses, under Kubernetes' names where it has one.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{gauge, gauges};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkFigures {
    /// By phase.
    pub pods: Vec<(&'static str, u64)>,
    pub ready: u64,
    pub waiting: u64,
    pub leaving: u64,
    pub terminating: u64,
    pub pools: Vec<PoolFigures>,
    pub nodes_without_cidr: u64,
    pub resting: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolFigures {
    pub range: String,
    pub blocks: u64,
    pub free: u64,
}

// === impl WorkFigures ===

impl WorkFigures {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let by_phase = self.pods.iter().map(|(phase, count)| ([("phase", *phase)], *count as f64));
        gauges(encoder, ("muster_pods", "Pods in the state of this replica, by phase."), by_phase)?;
        let single = [
            ("muster_pods_ready", "Pods that are Ready.", self.ready),
            ("muster_pods_waiting", "Pods that wait for a node.", self.waiting),
            ("muster_pods_leaving", "Pods that have to leave a tainted node, now or later.", self.leaving),
            ("muster_pods_terminating", "Deleted pods that are not confirmed stopped.", self.terminating),
            ("muster_nodes_without_cidr", "Nodes without addresses for pods.", self.nodes_without_cidr),
            ("muster_cidrs_resting", "Blocks that were given back and rest.", self.resting),
        ];
        for (name, help, value) in single {
            gauge(encoder, (name, help), value as f64)?;
        }
        let usage = ("node_ipam_controller_cidrset_usage_cidrs", "Gauge measuring percentage of allocated CIDRs.");
        gauges(encoder, usage, self.pools.iter().map(|pool| (pool.label(), pool.usage())))?;
        let most = ("node_ipam_controller_cirdset_max_cidrs", "Maximum number of CIDRs that can be allocated.");
        gauges(encoder, most, self.pools.iter().map(|pool| (pool.label(), pool.blocks as f64)))
    }
}

// === impl PoolFigures ===

impl PoolFigures {
    fn label(&self) -> [(&'static str, &str); 1] {
        [("clusterCIDR", self.range.as_str())]
    }

    fn usage(&self) -> f64 {
        let taken = self.blocks.saturating_sub(self.free);
        if self.blocks == 0 { 0.0 } else { taken as f64 / self.blocks as f64 }
    }
}
