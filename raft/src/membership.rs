//! The members of the cluster: how it is formed, how members come and go, and how one learns that it must stop.

pub mod audit;
mod change;
pub mod fitness;
pub mod formation;

pub use change::{MembershipChange, MembershipError};
