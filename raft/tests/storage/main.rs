//! Tests of the store's promises: nothing acknowledged is lost, nothing damaged is served.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails a test")]

mod checkpoint;
mod damage;
mod durability;
mod fixture;
mod golden;
mod levels;
mod restore;
mod snapshot;
mod suite;
