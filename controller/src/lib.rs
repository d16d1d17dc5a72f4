//! One replica of the controller: it wires consensus and state to the outside and owns every door.
//!
//! ```text
//!  peers ---- peer door ----> muster-raft (consensus, storage, feed)
//!  agents --- agent door ---> agent_service                 ^
//!  operators  client door --> operator_service -------------+   reads from the feed, writes through the leader
//!  scrapers - http door ----> http, metrics
//! ```
//!
//! Each door is its own listener with its own CA, limits and roles ([`door`], [`listener`]). [`server`] runs the
//! whole; the clock, the disk, the listeners and the connector are handed in, so that it also runs in a simulation.

pub mod agent_door;
pub mod agent_service;
pub mod collection;
pub mod config;
pub mod connector;
pub mod door;
mod duties;
pub mod enrolment;
pub mod explaining;
pub mod hall;
pub mod handshakes;
pub mod hearing;
pub mod http;
pub mod leading;
pub mod listener;
pub mod logging;
pub mod metrics;
pub mod observing;
pub mod operator_service;
pub mod overview;
pub mod pulse_service;
pub mod pulses;
pub mod restore;
pub mod server;
pub mod session;
mod sips;
mod strangers;
pub mod view;
pub mod watching;
