//! The will: watches the nodes, judges, and proposes. Grown where a replica leads, gone where it does not.
//!
//! ```text
//!   Tree              hands in what was committed; rebuilds the cluster actor if it dies
//!    +- cluster       sweeps all slots, tells the zones what changed and when to judge, asks for assessments and lifts
//!        +- zone      one per region/zone: gathers its nodes' transitions into proposals, two in flight
//!            +- shard           the zone's nodes among 4,096 neighbouring slots
//!            |   +- node        one per node: drives its NodeWatch
//!            +- eviction queue  spends the zone's tokens
//!        +- clerks    one per chore: taint eviction, placement, pod gc, staffing of workloads, ipam
//!
//!   pulses --> sweep --> NodeWatch (health core) --> transitions --> proposals --> the log --> committed state --> back here
//! ```
//!
//! A supervisor here never stops because a child did. A child that dies takes everything below it along and is
//! rebuilt after a pause that grows; the pauses run out with the rounds of the cluster actor, so no child has a timer of
//! its own. A node whose actor keeps dying is quarantined with an event; everybody else keeps being rebuilt, slowly.
//!
//! Nothing is remembered that State and the pulses could not give back: a rebuilt shard is unsure of all of its
//! nodes and judges each of them anew. News travels down through letterboxes ([`letterbox`]) and transitions up to their
//! zone, so that a mailbox holds few wake-ups and the newest word counts.

mod alarm;
mod backlog;
mod chore;
mod clerk;
mod cluster;
mod eviction_queue;
mod ground;
mod letterbox;
mod news;
mod node;
pub mod node_watch;
mod nursery;
mod pace;
mod population;
mod precedence;
pub mod proposal;
pub mod quarantine;
mod restart;
mod roster;
mod shard;
pub mod surroundings;
mod transition;
pub mod tree;
mod zone;

pub use proposal::{Proposal, Settlement};
pub use surroundings::{ActorKind, Ledger, Observer, Probe, Surroundings};
pub use tree::Tree;
