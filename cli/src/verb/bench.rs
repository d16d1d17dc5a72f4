//! `muster bench`: measure a cluster of this very binary.

use muster_bench::Scenario;

use crate::exit::Failure;

#[derive(Debug, Clone, Copy, clap::Subcommand)]
pub enum Args {
    /// Committed writes per second at 1, 16 and 256 clients
    Writes {
        /// How long to measure at each number of clients
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// How long writes pause when the leader is killed
    Gap {
        #[arg(long, default_value_t = 20)]
        kills: usize,
    },
    /// Resident memory per node of replica processes
    Memory {
        #[arg(long, default_value_t = 100_000)]
        nodes: usize,
    },
    /// Resident memory per node of the replicated state alone
    State {
        #[arg(long, default_value_t = 100_000)]
        nodes: usize,
    },
    /// Pods per second that find a node, in a cluster and on the state alone
    Placement {
        #[arg(long, default_value_t = 5_000)]
        nodes: usize,
        #[arg(long, default_value_t = 10_000)]
        pods: usize,
    },
    /// How late pods leave a zone that fell silent
    Evictions {
        /// In all three zones
        #[arg(long, default_value_t = 1_000)]
        nodes: usize,
        /// In the zone that falls silent, a hundred to a node
        #[arg(long, default_value_t = 30_000)]
        pods: usize,
        /// Nodes tainted per second
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        rate: u32,
    },
    /// What node CIDRs add to a registration
    Cidrs {
        #[arg(long, default_value_t = 100_000)]
        nodes: usize,
    },
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let scenario = match args {
        Args::Writes { seconds } => Scenario::Writes { seconds },
        Args::Gap { kills } => Scenario::Gap { kills },
        Args::Memory { nodes } => Scenario::Memory { nodes },
        Args::State { nodes } => Scenario::State { nodes },
        Args::Placement { nodes, pods } => Scenario::Placement { nodes, pods },
        Args::Evictions { nodes, pods, rate } => Scenario::Evictions { nodes, pods, rate },
        Args::Cidrs { nodes } => Scenario::Cidrs { nodes },
    };
    let binary = std::env::current_exe().map_err(|error| Failure::Other(error.into()))?;
    muster_bench::run(binary, scenario).await.map_err(Failure::Other)
}
