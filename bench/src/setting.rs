//! How a scenario is to be run: at which scale, on which cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::cluster::Cluster;

#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The `muster` binary itself: replicas are started from it.
    pub binary: PathBuf,
    pub scale: Scale,
    /// Overrides what the scale says.
    pub nodes: Option<usize>,
    /// Overrides what the scale says.
    pub seconds: Option<u64>,
    /// Of a running `muster dev` cluster, instead of an own one.
    pub dir: Option<PathBuf>,
    /// How often a leader is killed.
    pub kills: Option<usize>,
    pub pods: Option<usize>,
    /// Nodes tainted per second.
    pub rate: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Finishes within two minutes: whether anything is lost, not how fast it is.
    Small,
    /// What the goals are about.
    #[default]
    Full,
}

// === impl Setting ===

impl Setting {
    /// How many nodes: as asked for, or as the scale says.
    pub fn nodes(&self, small: usize, full: usize) -> usize {
        self.nodes.unwrap_or(self.scale.pick(small, full))
    }

    /// How long to measure, in seconds: as asked for, or as the scale says.
    pub fn duration(&self, small: u64, full: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(self.scale.pick(small, full)))
    }

    /// The running cluster that was named, or a new one for nodes without agents, which nobody misses.
    pub fn cluster(&self) -> Result<Cluster> {
        match &self.dir {
            Some(dir) => Cluster::attach(&self.binary, dir),
            None => Cluster::start(&self.binary),
        }
    }

    /// The running cluster that was named, or a new one with these flags of `muster dev`.
    pub fn cluster_with(&self, flags: &[&str]) -> Result<Cluster> {
        match &self.dir {
            Some(dir) => Cluster::attach(&self.binary, dir),
            None => Cluster::start_with(&self.binary, flags),
        }
    }
}

// === impl Scale ===

impl Scale {
    pub fn pick<T>(self, small: T, full: T) -> T {
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
    fn what_was_asked_for_overrides_the_scale() {
        let mut setting = Setting { scale: Scale::Small, ..Setting::default() };
        assert_eq!((setting.nodes(10, 1_000), setting.duration(5, 60)), (10, Duration::from_secs(5)));
        setting.scale = Scale::Full;
        assert_eq!((setting.nodes(10, 1_000), setting.duration(5, 60)), (1_000, Duration::from_secs(60)));
        (setting.nodes, setting.seconds) = (Some(7), Some(3));
        assert_eq!((setting.nodes(10, 1_000), setting.duration(5, 60)), (7, Duration::from_secs(3)));
    }
}
