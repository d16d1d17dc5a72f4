//! What the store promises: nothing acknowledged is lost, nothing damaged is served.

mod checkpoint;
mod damage;
mod durability;
mod fixture;
mod golden;
mod restore;
mod snapshot;
mod suite;
