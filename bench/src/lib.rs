//! Benchmarks of a whole cluster: each scenario starts three replica processes of its own, drives them over
//! real sockets with real TLS, and prints a table.
//!
//! Load generator and replicas share the machine, so figures are to be compared within one run.

pub mod cluster;
pub mod gap;
pub mod latency;
pub mod memory;
pub mod node;
pub mod state;
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
}

/// Runs one scenario with the given `muster` binary and prints its table.
pub async fn run(binary: PathBuf, scenario: Scenario) -> Result<()> {
    let cluster = || cluster::Cluster::start(&binary);
    match scenario {
        Scenario::Writes { seconds } => writes::run(&cluster()?, Duration::from_secs(seconds)).await,
        Scenario::Gap { kills } => gap::run(&cluster()?, kills).await,
        Scenario::Memory { nodes } => memory::run(&cluster()?, nodes).await,
        Scenario::State { nodes } => state::run(nodes),
    }
}
