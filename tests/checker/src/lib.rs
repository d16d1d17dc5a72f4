//! Checks of what a test has seen, after the fact.
//!
//! ```text
//!   register    an object that operators read and write: calls, answers, a history of them
//!   search      whether some order of a history's operations explains all of its answers (I-09)
//!   stale       reads that may be old: their values existed, and no replica went back in time
//!   load        clients that read and write registers through all replicas while a test makes faults
//!   consensus   what replicas report of terms, leaders and logs, and what must hold of it (I-16)
//! ```
//! This crate is apart from `tests/harness` because `raft`'s own tests use it and must not depend on `controller`.
#![allow(clippy::unwrap_used)]

pub mod consensus;
pub mod load;
pub mod register;
pub mod search;
pub mod stale;
