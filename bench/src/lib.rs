//! Benchmarks of a whole cluster: each scenario starts three replica processes of its own, drives them over
//! real sockets with real TLS, and prints a table. A few are about the replicated state alone, in one process.
//!
//! Load generator and replicas share the machine, so figures are to be compared within one run.

pub mod carried;
pub mod cidrs;
pub mod cluster;
pub mod evictions;
pub mod figure;
pub mod gap;
pub mod latency;
pub mod ledger;
pub mod memory;
pub mod node;
pub mod outcome;
pub mod peers;
pub mod placement;
pub mod processor;
pub mod progress;
pub mod scrape;
pub mod setting;
pub mod state;
pub mod table;
pub mod timeline;
pub mod usage;
pub mod workload;
pub mod writes;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Committed writes per second at 1, 16 and 256 clients.
    Writes { seconds: u64 },
    /// How long writes pause when the leader is killed.
    Gap { kills: usize },
    /// Bytes of memory per node: replica processes.
    Memory { nodes: usize },
    /// Bytes of memory per node: the replicated state alone.
    State { nodes: usize },
    /// Pods per second that find a node, in a cluster and on the state alone.
    Placement { nodes: usize, pods: usize },
    /// How late pods leave a zone that fell silent; `rate` is nodes tainted per second.
    Evictions { nodes: usize, pods: usize, rate: u32 },
    /// What node CIDRs add to a registration.
    Cidrs { nodes: usize },
}

/// Runs one scenario with the given `muster` binary and prints its table.
pub async fn run(binary: PathBuf, scenario: Scenario) -> Result<()> {
    let cluster = || cluster::Cluster::start(&binary);
    match scenario {
        Scenario::Writes { seconds } => writes::run(&cluster()?, Duration::from_secs(seconds)).await,
        Scenario::Gap { kills } => gap::run(&cluster()?, kills).await,
        Scenario::Memory { nodes } => memory::run(&cluster()?, nodes).await,
        Scenario::State { nodes } => state::run(nodes),
        Scenario::Placement { nodes, pods } => placement::run(&binary, nodes, pods).await,
        Scenario::Evictions { nodes, pods, rate } => evictions::run(&binary, nodes, pods, rate).await,
        Scenario::Cidrs { nodes } => cidrs::run(nodes),
    }
}
