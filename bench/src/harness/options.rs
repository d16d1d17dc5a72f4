//! Options of a run: the scale, the sizes that override it, and the cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::harness::cluster::BenchCluster;

#[derive(Debug, Clone, Default)]
pub struct BenchOptions {
    /// The `muster` binary itself: replicas are started from it.
    pub binary: PathBuf,
    pub scale: BenchScale,
    /// Overrides what the scale says.
    pub nodes: Option<usize>,
    /// Overrides what the scale says.
    pub seconds: Option<u64>,
    /// The folder of a running `muster dev` cluster, which is used instead of a new one.
    pub dir: Option<PathBuf>,
    /// How often a leader is killed.
    pub kills: Option<usize>,
    pub pods: Option<usize>,
    /// Nodes tainted per second.
    pub rate: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BenchScale {
    /// Finishes within two minutes: whether anything is lost, not how fast it is.
    Small,
    /// The scale that the goals are about.
    #[default]
    Full,
}

// === impl BenchOptions ===

impl BenchOptions {
    /// How many nodes: as asked for, or as the scale says.
    pub(crate) fn nodes(&self, small: usize, full: usize) -> usize {
        self.nodes.unwrap_or(self.scale.pick(small, full))
    }

    /// How long to measure, in seconds: as asked for, or as the scale says.
    pub(crate) fn duration(&self, small: u64, full: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(self.scale.pick(small, full)))
    }

    /// The running cluster that was named, or a new one for nodes without agents, which never judges a node.
    pub(crate) fn cluster(&self) -> Result<BenchCluster> {
        match &self.dir {
            Some(dir) => BenchCluster::attach(&self.binary, dir),
            None => BenchCluster::start(&self.binary),
        }
    }

    /// The folder into which the replicas write.
    pub(crate) fn disk_dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The running cluster that was named, or a new one with these flags of `muster dev`.
    pub(crate) fn cluster_with(&self, flags: &[&str]) -> Result<BenchCluster> {
        match &self.dir {
            Some(dir) => BenchCluster::attach(&self.binary, dir),
            None => BenchCluster::start_with(&self.binary, flags),
        }
    }
}

// === impl BenchScale ===

impl BenchScale {
    pub(crate) fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_scale() {
        let mut options = BenchOptions { scale: BenchScale::Small, ..BenchOptions::default() };
        assert_eq!((options.nodes(10, 1_000), options.duration(5, 60)), (10, Duration::from_secs(5)));
        options.scale = BenchScale::Full;
        assert_eq!((options.nodes(10, 1_000), options.duration(5, 60)), (1_000, Duration::from_secs(60)));
        (options.nodes, options.seconds) = (Some(7), Some(3));
        assert_eq!((options.nodes(10, 1_000), options.duration(5, 60)), (7, Duration::from_secs(3)));
    }
}
