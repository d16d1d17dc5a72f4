//! The memory of a replica: it replicates, persists, applies and publishes the state.
//!
//! ```text
//!                    writes                                             reads, watches
//!   operators -> Replica::write -> proposer --+                      +--> feed -> readers, watchers
//!                    | (forwarded)            v                      |
//!                    +---------------->  openraft  ---> state_machine (State::apply)
//!                                          |   ^                     |
//!                           log_store (redb)   |                     +--> checkpoint (sled, in the background)
//!                           snapshot_store     network <-> peer_service of the other replicas
//! ```
//!
//! Everything durable goes through [`disk::Disk`], every connection through [`connector::Connector`], every
//! clock reading through [`clock::Clock`]: tests bring their own.

pub mod clock;
pub mod feed;
pub mod membership;
pub mod replica;
mod replication;
mod storage;
pub mod types;
mod write;

pub use membership::{audit, formation};
pub use replication::{connector, greeting, hello, network, peer_service, peers};
pub use storage::{
    abort, checkpoint, disk, frame, log_store, persisted, snapshot_pressure, snapshot_store, state_machine, store,
};
pub use write::{encoded, proposer};
