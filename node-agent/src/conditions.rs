//! How the machine is doing: pressures, readiness, the network, and what the operator's own checks find.
//!
//! ```text
//!   /proc, statvfs --> Probe --> Sample --> Pressures (thresholds, minimum reclaim, anti-flap) --+
//!   a command or an address --> NetworkCheck --+                                                 v
//!   executables of a directory --> CustomChecks +--> Board --------------> Monitor --> Conditions, newest wins
//!   what runs the pods --> Readiness ----------------------------------------^
//! ```
//!
//! When a shortage is a pressure is decided by a plain value that is handed sample and time ([`Pressures`]); the rest
//! is looking. Nothing that hangs, floods or lies in wait below the machine holds up a report.

mod board;
mod condition;
mod custom;
mod execution;
mod monitor;
mod network;
mod pace;
mod pressure;
mod probe;
mod sample;
mod signal;
mod threshold;

pub use condition::{Condition, Conditions, Finding};
pub use custom::{CHECK_INTERVAL, CHECK_TIMEOUT, CHECKS_MAX, Check, CustomChecks, Refused, Scan};
pub use monitor::{Monitor, MonitorConfig, Readiness, SAMPLE_INTERVAL};
pub use network::{NETWORK_INTERVAL, NETWORK_TIMEOUT, NETWORK_UNAVAILABLE, NetworkCheck, NetworkProbe};
pub use pressure::{Pressures, Shortage, TRANSITION_PERIOD, Verdict};
pub use sample::{Level, Reading, Sample};
pub use signal::{PressureKind, Signal};
pub use threshold::{Amount, HARD_DEFAULT, Threshold, ThresholdError, Thresholds, duration};
