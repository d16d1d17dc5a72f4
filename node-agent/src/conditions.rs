//! Conditions of the machine: pressures, readiness, the network, and the operator's own checks.
//!
//! ```text
//!   /proc, statvfs --> Probe --> MachineSample --> Pressures (thresholds, minimum reclaim, anti-flap) --+
//!   a command or an address --> NetworkCheck ----+                                                       v
//!   executables of a directory --> CustomChecks -+--> CheckBoard ------> Monitor --> MachineConditions, newest wins
//!   pod runtime --> Readiness ----------------------------------------------^
//! ```
//!
//! A plain value decides when a shortage is a pressure; sample and time are arguments ([`Pressures`]). Everything else
//! reads. Nothing that hangs, floods or fails on the machine delays a report.

mod check_board;
mod condition;
mod custom;
mod execution;
mod monitor;
mod network;
mod pressure;
mod probe;
mod rounds;
mod sample;
mod signal;
mod threshold;

pub use condition::{CheckResult, MachineCondition, MachineConditions};
pub use custom::{CHECK_INTERVAL, CHECK_TIMEOUT, CHECKS_MAX, CheckScan, CustomCheck, CustomChecks, RefusedCheck};
pub use monitor::{Monitor, MonitorConfig, Readiness, SAMPLE_INTERVAL};
pub use network::{NETWORK_INTERVAL, NETWORK_TIMEOUT, NETWORK_UNAVAILABLE, NetworkCheck, NetworkProbe};
pub use pressure::{MetThreshold, PressureState, Pressures, TRANSITION_PERIOD};
pub use sample::{MachineSample, Reading, ResourceLevel};
pub use signal::{PressureKind, Signal};
pub use threshold::{Amount, HARD_DEFAULT, Threshold, ThresholdError, Thresholds, duration};
