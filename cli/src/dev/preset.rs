//! The policies that `muster dev` knows by name.
//!
//! With Kubernetes' own timings a dead zone takes minutes to show and an hour to empty. The demo policy has the same
//! proportions at a pace at which one can watch.

use std::fmt;

use clap::ValueEnum;
use muster_controller::config::PolicyLayer;
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::policy::{Policy, Rate};
use muster_lifecycle::time::Period;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Grace 8s, period 1s, tolerations 10s, one node per second
    #[default]
    Demo,
    /// Kubernetes' defaults
    Upstream,
}

impl Preset {
    fn policy(self) -> Policy {
        match self {
            Self::Upstream => Policy::default(),
            Self::Demo => Policy {
                node_monitor_period: Period::from_secs(1),
                node_monitor_grace_period: Period::from_secs(8),
                node_startup_grace_period: Period::from_secs(12),
                pod_eviction_timeout: Period::from_secs(10),
                node_eviction_rate: Rate(1_000_000),
                secondary_node_eviction_rate: Rate(100_000),
                ..Policy::default()
            },
        }
    }

    /// The preset's policy, with the settings given as flags in place of its own.
    pub(super) fn with(self, by_hand: &PolicyLayer) -> Result<Policy, Invalid> {
        let mut policy = self.policy();
        for (name, value) in by_hand.iter() {
            policy.set(name, value)?;
        }
        policy.validate()?;
        Ok(policy)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Demo => "demo",
            Self::Upstream => "upstream",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_valid_policy() {
        for preset in [Preset::Demo, Preset::Upstream] {
            preset.policy().validate().unwrap();
        }
    }

    #[test]
    fn single_flags_override_the_preset() {
        let mut by_hand = PolicyLayer::default();
        by_hand.set("node-eviction-rate", "5").unwrap();
        let policy = Preset::Demo.with(&by_hand).unwrap();
        assert_eq!(policy.node_eviction_rate.to_string(), "5");
        assert_eq!(policy.node_monitor_grace_period.to_string(), "8s");
        assert_eq!(policy.pod_eviction_timeout.to_string(), "10s");
        by_hand.set("node-monitor-period", "9s").unwrap();
        assert!(Preset::Demo.with(&by_hand).unwrap_err().to_string().contains("above node-monitor-grace-period (8s)"));
        assert!(Preset::Upstream.with(&by_hand).is_ok());
    }
}
