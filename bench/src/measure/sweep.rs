//! Sweep times of the leader over all nodes, as it measures them itself.

use anyhow::{Result, ensure};

use crate::harness::cluster::BenchCluster;

/// Sums since the replica was started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SweepTimes {
    seconds: f64,
    count: f64,
}

// === impl SweepTimes ===

impl SweepTimes {
    pub(crate) async fn of(cluster: &BenchCluster, replica: u64) -> Result<Self> {
        let metrics = cluster.scrape(replica).await?;
        let part = |name: &str| metrics.sum(&format!("muster_sweep_duration_seconds_{name}"));
        Ok(Self { seconds: part("sum"), count: part("count") })
    }

    /// How long a sweep took on average since then.
    pub(crate) fn millis_since(&self, before: &Self) -> Result<f64> {
        let count = self.count - before.count;
        ensure!(count > 0.0, "the replica did not sweep meanwhile: it does not lead, or no longer");
        Ok(1_000.0 * (self.seconds - before.seconds) / count)
    }
}
