//! Claims: each replica claims its sessions from the leader, which keeps one session per node.

pub(crate) mod arbiter;
pub(crate) mod claimant;
