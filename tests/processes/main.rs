//! Tests with real processes, in one binary: it is linked once, and tests that wait on real time overlap.
#![allow(clippy::unwrap_used)]

mod bench;
mod commands;
mod dev;
mod failover;
mod faults;
mod joining;
mod lifecycle;
mod linearizable;
mod machines;
mod membership;
mod readme;
mod upgrade;
mod workloads;
