//! The lifecycle settings as flags, under upstream's names, for every command that starts replicas.
//!
//! A new cluster gets them as its policy; from then on `muster set config` changes it, for all replicas at once.

use muster_controller::config::PolicyLayer;
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::policy::{
    LARGE_CLUSTER_SIZE_SCOPE, LARGE_CLUSTER_SIZE_THRESHOLD, NODE_EVICTION_RATE, NODE_MONITOR_GRACE_PERIOD,
    NODE_MONITOR_PERIOD, NODE_STARTUP_GRACE_PERIOD, POD_EVICTION_TIMEOUT, Policy, SECONDARY_NODE_EVICTION_RATE,
    UNHEALTHY_ZONE_THRESHOLD, UPGRADE_FINALIZE_AFTER,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Lifecycle policy")]
pub struct PolicyArgs {
    /// How often the zones are looked at [upstream: 5s]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| checked(NODE_MONITOR_PERIOD, text))]
    pub node_monitor_period: Option<String>,
    /// How long a node may be silent before it counts as lost [upstream: 40s]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| checked(NODE_MONITOR_GRACE_PERIOD, text))]
    pub node_monitor_grace_period: Option<String>,
    /// The same for a node that has never been ready [upstream: 1m]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| checked(NODE_STARTUP_GRACE_PERIOD, text))]
    pub node_startup_grace_period: Option<String>,
    /// How long pods without a toleration of their own stay on a lost node [upstream: 5m]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| checked(POD_EVICTION_TIMEOUT, text))]
    pub pod_eviction_timeout: Option<String>,
    /// Nodes per second that are evicted in a zone [upstream: 0.1]
    #[arg(long, value_name = "RATE", value_parser = |text: &str| checked(NODE_EVICTION_RATE, text))]
    pub node_eviction_rate: Option<String>,
    /// The same in a large zone that is partially disrupted [upstream: 0.01]
    #[arg(long, value_name = "RATE", value_parser = |text: &str| checked(SECONDARY_NODE_EVICTION_RATE, text))]
    pub secondary_node_eviction_rate: Option<String>,
    /// From which share of nodes that are not ready a zone is disrupted [upstream: 0.55]
    #[arg(long, value_name = "SHARE", value_parser = |text: &str| checked(UNHEALTHY_ZONE_THRESHOLD, text))]
    pub unhealthy_zone_threshold: Option<String>,
    /// Above how many nodes a disrupted zone still evicts [upstream: 50]
    #[arg(long, value_name = "NODES", value_parser = |text: &str| checked(LARGE_CLUSTER_SIZE_THRESHOLD, text))]
    pub large_cluster_size_threshold: Option<String>,
    /// Whose nodes are counted for that: those of the zone, or of the cluster [upstream: zone]
    #[arg(long, value_name = "SCOPE", value_parser = |text: &str| checked(LARGE_CLUSTER_SIZE_SCOPE, text))]
    pub large_cluster_size_scope: Option<String>,
    /// How long after every replica speaks a new level it is put into force, or manual [upstream: none; default: 10m]
    #[arg(long, value_name = "TIME|manual", value_parser = |text: &str| checked(UPGRADE_FINALIZE_AFTER, text))]
    pub upgrade_finalize_after: Option<String>,
}

// === impl PolicyArgs ===

impl PolicyArgs {
    /// The given flags, as the layer above a configuration file's `[policy]`.
    pub fn layer(&self) -> Result<PolicyLayer, Invalid> {
        let given = [
            (NODE_MONITOR_PERIOD, &self.node_monitor_period),
            (NODE_MONITOR_GRACE_PERIOD, &self.node_monitor_grace_period),
            (NODE_STARTUP_GRACE_PERIOD, &self.node_startup_grace_period),
            (POD_EVICTION_TIMEOUT, &self.pod_eviction_timeout),
            (NODE_EVICTION_RATE, &self.node_eviction_rate),
            (SECONDARY_NODE_EVICTION_RATE, &self.secondary_node_eviction_rate),
            (UNHEALTHY_ZONE_THRESHOLD, &self.unhealthy_zone_threshold),
            (LARGE_CLUSTER_SIZE_THRESHOLD, &self.large_cluster_size_threshold),
            (LARGE_CLUSTER_SIZE_SCOPE, &self.large_cluster_size_scope),
            (UPGRADE_FINALIZE_AFTER, &self.upgrade_finalize_after),
        ];
        let mut layer = PolicyLayer::default();
        for (name, value) in given {
            value.as_ref().map_or(Ok(()), |value| layer.set(name, value))?;
        }
        Ok(layer)
    }
}

fn checked(name: &str, text: &str) -> Result<String, String> {
    Policy::default().set(name, text).map(|()| text.to_owned()).map_err(|invalid| invalid.rule.to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn parse(line: &str) -> Result<PolicyArgs, String> {
        let words = std::iter::once("muster").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.policy).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_a_flag_whose_help_says_upstreams_value() {
        let command = Line::command();
        for (name, upstream) in Policy::default().settings() {
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name)).expect(name);
            let help = flag.get_help().expect(name).to_string();
            // Settings that upstream does not have say our default.
            let said = [format!("[upstream: {upstream}]"), format!("[upstream: none; default: {upstream}]")];
            assert!(said.iter().any(|said| help.ends_with(said)), "--{name}: {help}");
        }
    }

    #[test]
    fn every_flag_sets_the_setting_of_its_name() {
        for (name, value) in Policy::default().settings() {
            let mut wanted = PolicyLayer::default();
            wanted.set(name, &value).unwrap();
            assert_eq!(parse(&format!("--{name}={value}")).unwrap().layer().unwrap(), wanted);
        }
        assert!(parse("").unwrap().layer().unwrap().is_empty());
    }

    #[test]
    fn a_bad_value_is_refused_with_the_rule() {
        for (line, part) in [
            ("--node-monitor-period=5", "\"5\" is not a duration: write numbers with a unit"),
            ("--node-eviction-rate=fast", "\"fast\" is not a rate"),
            ("--unhealthy-zone-threshold=1.5", "\"1.5\" is not a fraction"),
            ("--large-cluster-size-threshold=-1", "is not a number of nodes"),
            ("--large-cluster-size-scope=region", "is not one of zone, cluster"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(part), "{part:?} is not in {message}");
        }
    }
}
