//! One replica of the controller: it wires consensus and state to the outside and owns every door.
//!
//! ```text
//!  peers ---- peer door ----> muster-raft (consensus, storage, feed)
//!  agents --- agent door ---> agent_service                 ^
//!  operators  client door --> operator_service -------------+   reads from the feed, writes through the leader
//! ```
//!
//! Each door is its own listener with its own CA, limits and roles ([`door`], [`listener`]). [`server`] runs the
//! whole; the clock, the disk, the listeners and the connector are handed in, so that it also runs in a simulation.

pub mod address;
pub mod agent_service;
pub mod client;
pub mod collection;
pub mod config;
pub mod connector;
pub mod door;
pub mod fleet;
pub mod identity;
pub mod listener;
pub mod logging;
pub mod operator_service;
pub mod overview;
pub mod pki;
pub mod restore;
pub mod secret;
pub mod server;
pub mod tls;
pub mod watching;
