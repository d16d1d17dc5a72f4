//! The `muster` binary as a library: the client verbs, the local development cluster, and starting a replica.
//!
//! ```text
//!   args ──> verb ──> client ──TLS──> any replica
//!             │  └──> render ──> output (stdout)
//!             ├──> dev       three replica processes on this machine
//!             └──> server    one replica, from flags and a file
//! ```
//! The client itself is `muster_client`, beside the door it knocks at, so that tests and load generators use
//! the very client that operators use.

pub mod addressing;
pub mod args;
pub mod dev;
pub mod discover;
pub mod exit;
pub mod manifest;
pub mod namespace;
pub mod output;
pub mod policy;
pub mod program;
pub mod render;
pub mod resource;
pub mod simulate;
pub mod verb;
pub mod yaml;
