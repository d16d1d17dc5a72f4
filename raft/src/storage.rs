//! Everything durable of a replica: the log, the snapshots, the checkpoint, and the state rebuilt from them.
//!
//! Every byte goes through a [`disk::Disk`]. A failed write ends the process: see [`abort`].

pub mod abort;
pub mod checkpoint;
pub mod disk;
pub mod disk_health;
pub mod frame;
pub mod log_store;
pub mod persisted;
pub mod snapshot_pressure;
pub mod snapshot_store;
pub mod state_machine;
pub mod store;
