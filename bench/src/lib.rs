//! Benchmarks of a whole cluster: each scenario starts three replica processes of its own, drives them over
//! real sockets with real TLS, and returns figures. A few are about the replicated state alone, in one process.
//!
//! ```text
//! Setting -> catalog: one Scenario per name -> Outcome: findings, tables, timeline, faults
//!              (frame runs them)                 -> stdout, JSON lines (line), a page (report)
//! ```
//!
//! Load generator and replicas share the machine, so figures are to be compared within one run.

pub mod agents;
pub mod bereft;
pub mod calm;
pub mod carried;
pub mod catalog;
pub mod cidrs;
pub mod cluster;
pub mod comeback;
pub mod detect;
pub mod evictions;
pub mod exponent;
pub mod failover;
pub mod figure;
pub mod fleet;
pub mod flood;
pub mod footprint;
pub mod frame;
pub mod gap;
pub mod garrison;
pub mod growth;
pub mod heartbeats;
pub mod latency;
pub mod ledger;
pub mod line;
pub mod load;
pub mod machine;
pub mod memory;
pub mod node;
pub mod outcome;
pub mod patience;
pub mod peers;
pub mod placement;
pub mod processor;
pub mod progress;
pub mod register;
pub mod report;
pub mod scrape;
pub mod setting;
pub mod stage;
pub mod stalled;
pub mod state;
pub mod storm;
pub mod sweep;
pub mod table;
pub mod timeline;
pub mod usage;
pub mod verdicts;
pub mod visibility;
pub mod wire;
pub mod workload;
pub mod writes;
pub mod zone_loss;
