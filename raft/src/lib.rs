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

pub mod abort;
pub mod audit;
pub mod checkpoint;
pub mod clock;
mod codec;
pub mod connector;
pub mod disk;
pub mod feed;
pub mod formation;
mod forward;
mod forwarder;
pub mod frame;
pub mod greeting;
pub mod log_store;
pub mod membership;
pub mod network;
pub mod peer_service;
pub mod peers;
pub mod persisted;
pub mod proposer;
pub mod reach;
pub mod replica;
pub mod sealed;
pub mod snapshot_pressure;
pub mod snapshot_store;
pub mod state_machine;
pub mod store;
pub mod types;
