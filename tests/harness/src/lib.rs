//! Test clusters in four layers. All take their members from one description and share the
//! functions that ask, wait and kill.
//!
//! ```text
//!   parts       pieces of replicas as tasks of the test: consensus and heartbeats, without a controller
//!   inprocess   replicas as tasks of the test: links that can be cut, clocks that can be set, a probe in every actor
//!   dev         replicas as processes of `muster dev`, which can be killed and frozen; `fleet` is its simulated nodes
//!   network     replicas and agents as processes on machines that are network namespaces: cables can be pulled
//!       \           |           /
//!        members (addresses and certificates of replicas)     operator (asking by the `muster` binary)
//!                                     registers (operators' reads and writes, checked to be linearizable)
//!                      waiting (until something is so)   process (signals, free ports)   turn (not too many at once)
//! ```
//! `raft`'s own tests have a harness of their own (`raft/tests/harness.rs`): they must not depend on `controller`.
#![allow(clippy::unwrap_used)]

pub mod dev;
pub mod fleet;
pub mod inprocess;
pub mod members;
pub mod network;
pub mod operator;
pub mod parts;
pub mod process;
pub mod registers;
pub mod runs;
pub mod turn;
pub mod waiting;
