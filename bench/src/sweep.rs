//! What the leader's sweeps over all nodes take, as it measured them itself.

use anyhow::{Result, ensure};

use crate::cluster::Cluster;

/// Since the replica was started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sweeps {
    seconds: f64,
    count: f64,
}

// === impl Sweeps ===

impl Sweeps {
    pub async fn of(cluster: &Cluster, replica: u64) -> Result<Self> {
        let metrics = cluster.scrape(replica).await?;
        let part = |name: &str| metrics.sum(&format!("muster_sweep_duration_seconds_{name}"));
        Ok(Self { seconds: part("sum"), count: part("count") })
    }

    /// How long one took on average since then.
    pub fn millis_since(&self, before: &Self) -> Result<f64> {
        let count = self.count - before.count;
        ensure!(count > 0.0, "the replica did not sweep meanwhile: it does not lead, or no longer");
        Ok(1_000.0 * (self.seconds - before.seconds) / count)
    }
}
