//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use muster_lifecycle::time::Period;
use muster_node_agent::agent::AgentArgs;

use crate::dev;
use crate::verb;

/// A node controller without etcd or an API server
#[derive(Debug, Parser)]
#[command(name = "muster", version, about, arg_required_else_help = true, disable_help_subcommand = false)]
pub struct Cli {
    /// The folder with the cluster's client.toml [default: $MUSTER_DIR, ~/.config/muster, ./.muster-dev]
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How long to try, as in 500ms, 10s, 2m [default: 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = timeout)]
    pub timeout: Option<Duration>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show nodes, pods, workloads, events, zones, settings, aggregators or replicas
    Get(verb::get::Args),
    /// Show nodes, pods or workloads at length, with their events
    Describe(verb::describe::Args),
    /// Say why a node, zone or pod is in the state it is in, and what will happen when
    Explain(verb::explain::Args),
    /// Change settings of the cluster, or which nodes an aggregator may carry
    #[command(subcommand)]
    Set(verb::set::Action),
    /// Create or change nodes, pods and workloads from manifests (JSON or YAML)
    Apply(verb::apply::Args),
    /// Set (k=v) or remove (k-) labels of a node
    Label(verb::edit::PairsArgs),
    /// Set (k=v) or remove (k-) annotations of a node
    Annotate(verb::edit::PairsArgs),
    /// Add (k=v:Effect) or remove (k:Effect-, k-) taints of a node
    Taint(verb::edit::TaintArgs),
    /// Mark nodes as unschedulable
    Cordon(verb::cordon::Args),
    /// Mark nodes as schedulable
    Uncordon(verb::cordon::Args),
    /// Delete nodes, pods or workloads
    Delete(verb::delete::Args),
    /// Show the cluster's leader, replicas and counts
    Status(verb::status::Args),
    /// Show how far an upgrade of the replicas has come, or finish it
    #[command(subcommand)]
    Upgrade(verb::upgrade::Action),
    /// Change which replicas belong to the cluster
    #[command(subcommand)]
    Member(verb::member::Action),
    /// Make, list and revoke the tokens with which machines join
    #[command(subcommand)]
    Token(verb::token::Action),
    /// Revoke the credentials of a node
    #[command(subcommand)]
    Node(verb::node::Action),
    /// Write a backup of the cluster's state to a file
    Backup(verb::backup::Args),
    /// Make stopped, empty replicas start from a backup, as a new cluster of the same fleet
    Restore(verb::restore::Args),
    /// Found a fleet: its id, certificate authorities, and what each replica and operator needs
    Init(verb::init::Args),
    /// Run one replica
    Server(Box<verb::server::Args>),
    /// Run the agent of this machine, as muster-agent does
    Agent(Box<AgentArgs>),
    /// Run a local cluster of real replica processes
    Dev(Box<dev::Args>),
    /// Play a scenario in virtual time and show what would happen
    Simulate(verb::simulate::Args),
    /// Make the simulated nodes of a running `muster dev` misbehave
    #[command(subcommand)]
    Fleet(verb::fleet::Action),
    /// Measure a cluster of this binary, started for the purpose
    Bench(verb::bench::Args),
    /// Print a completion script for a shell
    Completions(verb::completions::Args),
    /// Print the version
    Version,
}

/// `500ms`, `10s`, `1m30s`, `1h`; a bare number means seconds.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Period::from_secs);
    match seconds.or_else(|| text.parse().ok()) {
        Some(period) if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&period) => Ok(Duration::from_millis(period.0)),
        Some(_) => Err(format!("must be from {TIMEOUT_MIN} to {TIMEOUT_MAX}")),
        None => Err(format!("{text:?} is not a time: write it like 500ms, 10s or 2m")),
    }
}

const TIMEOUT_MIN: Period = Period(1);
const TIMEOUT_MAX: Period = Period::from_secs(24 * 3_600);

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!(timeout("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(timeout("10"), Ok(Duration::from_secs(10)));
        assert_eq!(timeout("2m"), Ok(Duration::from_secs(120)));
        // The notation of times is the same everywhere.
        assert_eq!(timeout("1m1.5s"), Ok(Duration::from_millis(61_500)));
        for text in ["", "s", "0s", "-1s", "1.0005s", "10 s", "99999999999999999999s", "9999999h"] {
            assert!(timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_may_stand_before_and_after_the_verb() {
        for line in ["muster --dir x get nodes", "muster get nodes --dir x", "muster dev restart 2 --dir x"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.dir, Some(PathBuf::from("x")), "{line}");
        }
    }
}
