//! Tests with whole replicas in the test's own process, in one binary.
#![allow(clippy::unwrap_used)]

mod agent;
mod clocks;
mod disks;
mod partition;
mod sessions;
mod supervision;
mod writes;
