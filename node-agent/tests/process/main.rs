//! Tests of the process runtime with real processes: what it starts, how that ends, and what the next agent adopts.
#![allow(clippy::unwrap_used)]

mod adoption;
mod bench;
mod lifecycle;
