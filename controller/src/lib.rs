//! One replica of the controller: it wires consensus and state to the outside and owns every door.
//!
//! ```text
//!  peers ---- peer door ----> muster-raft (consensus, storage, feed)
//!  agents --- agent door ---> session::service             ^
//!  operators  client door --> operator::service -------------+   reads from the feed, writes through the leader
//!  scrapers - http door ----> observe
//! ```
//!
//! Each door is its own listener with its own CA, limits and roles ([`door`], [`door::listener`]). [`server`] runs the
//! whole; the clock, the disk, the listeners and the connector are handed in, so that it also runs in a simulation.

pub mod config;
pub mod door;
mod duties;
pub mod enrolment;
pub mod hearing;
mod leading;
pub mod observe;
pub mod operator;
pub mod restore;
pub mod server;
pub mod session;
