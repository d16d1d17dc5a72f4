//! Replicated state of one replica: it replicates, persists, applies and publishes the state.
//!
//! ```text
//!   operators, agents
//!         |  writes                                            readers, watchers
//!         v                                                            ^
//!   Replica::write --> write/proposer --> openraft <-- membership/     |
//!         |  on a follower                |  |  ^                    feed
//!         v                               |  |  |                      ^
//!   write/forwarder                       |  |  +----> storage/state_machine (State::apply)
//!         |                               |  |                         |
//!         |                               |  |                         +--> storage/checkpoint (sled, background)
//!         |                               |  +--> storage/log_store (redb), storage/snapshot_store
//!         v                               v
//!   replication/leader_client    replication/network <--> replication/peer_service of the other replicas
//! ```
//!
//! - `storage`: the log, the snapshots, the checkpoint, and the state rebuilt from them.
//! - `replication`: the traffic between replicas.
//! - `write`: the path of a command into a log entry.
//! - [`membership`]: how the cluster is formed, and how members come and go.
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

pub use membership::{audit, fitness, formation};
pub use replication::{connector, greeting, hello, network, peer_service, peers};
pub use storage::{
    abort, checkpoint, disk, disk_health, frame, log_store, persisted, snapshot_pressure, snapshot_store,
    state_machine, store,
};
pub use write::{encoded, proposer};
