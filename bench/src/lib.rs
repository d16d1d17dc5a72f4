//! Benchmarks of a whole cluster: each scenario starts three replica processes of its own, drives them over
//! real sockets with real TLS, and returns figures. A few are about the replicated state alone, in one process.
//!
//! ```text
//! harness: options, cluster, fleet, runner
//!    |  runs
//! scenario: one file each, listed in scenario.rs, named as on the command line
//!    |  drives the cluster with        |  measures it with         |  returns
//! load: nodes, agents, aggregators   measure: usage, verdicts    report: figures, tables, plots
//! ```
//!
//! Load generator and replicas share the machine, so figures are to be compared within one run.

mod harness;
mod load;
mod measure;
mod report;
mod scenario;

pub use harness::cluster::BenchCluster;
pub use harness::local_state;
pub use harness::options::{BenchOptions, BenchScale};
pub use harness::runner::{self, OutputFiles, RunSummary};
pub use load::node;
pub use load::simulated_zone::{self, SimulatedZone};
pub use report::figure::OTHER;
pub use scenario::{ALL, BenchScenario, CATALOG, select};
