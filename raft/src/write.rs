//! The path of a write: a command is encoded, forwarded to the leader if need be, and gathered into a log entry.

pub mod encoded;
pub(crate) mod forwarder;
pub mod proposer;
