//! Tests of the process runtime with real processes: how pods start and end, and which pods the next agent adopts.
#![allow(clippy::unwrap_used)]

mod adoption;
mod bench;
mod lifecycle;
