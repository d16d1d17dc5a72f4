//! The load: nodes that are told apart from real ones by nothing a replica can see, at a fraction of their cost.
//!
//! Three shapes, and every report says which: a *crowd* is many nodes on one stream (as an aggregator carries them), a
//! *bundle* is many streams of one node each on one connection (*paced* ones beat no oftener than nodes do), and an
//! *agent* has a connection of its own.

pub mod agents;
pub mod bundle;
pub mod crowd;
pub mod doors;
pub mod fleet;
pub mod flooder;
pub mod paced;
