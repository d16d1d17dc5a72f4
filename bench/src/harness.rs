//! Harness of the scenarios: their options, the cluster and the fleet they run on, and the runner that runs them in
//! turn.

pub(crate) mod cluster;
pub(crate) mod disk;
pub mod local_state;
pub(crate) mod options;
pub(crate) mod progress;
pub mod runner;
pub(crate) mod shared_fleet;
pub(crate) mod test_bed;
pub(crate) mod wait;
