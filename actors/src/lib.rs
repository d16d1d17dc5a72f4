//! The leader's supervision tree: watches the nodes, judges them, and proposes what follows. It runs only where a
//! replica leads.
//!
//! ```text
//!   Tree              hands in what was committed; rebuilds the cluster actor if it dies
//!    +- cluster       sweeps all slots, tells the zones what changed and when to judge, asks for assessments and lifts
//!        +- zone      one per region/zone: gathers its nodes' transitions into proposals, two in flight
//!            +- shard           the zone's nodes among 4,096 neighbouring slots
//!            |   +- node        one per node: drives its NodeWatch
//!            +- eviction queue  spends the zone's tokens
//!        +- clerks    one per task: taint eviction, placement, pod gc, staffing of workloads, ipam
//!
//!   pulses --> sweep --> NodeWatch (health core) --> transitions --> proposals --> the log
//!   the log --> committed state --> Tree
//! ```
//!
//! Actors hold no rule: every decision is a pure function of `lifecycle` (`judge`) or `pulse`, which `simulate` and
//! `explain` call as well.
//!
//! A supervisor here never stops because a child did. A child that dies takes everything below it along and is
//! rebuilt after a pause that grows. The rounds of the cluster actor end the pauses, so no child has a timer of its
//! own. A node whose actor keeps dying is quarantined with an event; every other child is rebuilt, slowly.
//!
//! Actors remember nothing that State and the pulses could not give back: a rebuilt shard is unsure of all of its
//! nodes and judges each of them anew. Updates travel down through letterboxes ([`supervision`]) and transitions up
//! to their zone, so that a mailbox holds few wake-ups and the newest update counts.

mod clerk;
mod cluster;
mod node;
pub mod ports;
pub mod proposal;
pub mod quarantine;
mod shard;
mod supervision;
pub mod tree;
mod zone;

pub use ports::{ActorKind, Observer, Ports, Probe, StateSource};
pub use proposal::{Proposal, ProposalOutcome};
pub use tree::Tree;
