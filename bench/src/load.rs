//! Load generators: simulated nodes that a replica cannot tell from real ones, at a fraction of their cost.
//!
//! Three shapes, and every report says which: a simulated *aggregator* carries many nodes on one stream, *streams*
//! are many streams of one node each on one connection (*saturating* ones beat as fast as the replicas read, *paced*
//! ones no oftener than nodes do), and an *agent* has a connection of its own.

pub(crate) mod agents;
pub(crate) mod aggregator;
mod backoff;
mod carry;
pub(crate) mod doors;
pub(crate) mod fleet;
pub(crate) mod flooding;
mod last_error;
pub mod node;
pub(crate) mod paced;
pub(crate) mod replica_sets;
pub(crate) mod saturating;
pub mod simulated_zone;
mod slices;
mod wire;
