//! The process runtime with real processes: what it starts, how that ends, and what an agent finds when it is back.
#![allow(clippy::unwrap_used)]

mod adoption;
mod bench;
mod lifecycle;
