//! The rules of the node lifecycle: pure decisions over replicated state.
//!
//! ```text
//!   Batch (stamp + commands) --> State::apply --> Applied
//!                                  |    |           outcomes: one per command
//!          rule, taint, draft           |           changes:  what watchers see, in revision order
//!          (what is legal)              |           touched:  which records to write down
//!                                       v
//!          Table per kind (nodes, events, replicas, clients, free slots) <--> records (key, bytes)
//! ```
//!
//! Every change also does what a node's own state entails (`rule::consequences`). What takes a clock, a rate or
//! heartbeats is judged by the cores in `judge` ([`health`], [`disruption`], [`oversight`]) under the [`policy`] in
//! force. The driver (the actors, a simulation) proposes what they find, and [`explain`] tells it to people.
//!
//! Nothing here awaits, reads a clock, does IO or rolls dice. Time is an argument, maps are ordered, and
//! [`State::apply`](state::State::apply) gives the same answer on every replica that is given the same log.

mod apply;
pub mod command;
pub mod explain;
pub mod invariant;
mod judge;
mod object;
pub mod rehearsal;
pub mod rejection;
pub mod rule;
pub mod state;
mod store;
mod value;

pub use command::client;
pub use judge::{
    claim, clerk_task, disruption, health, leader_view, oversight, placement, session, spared, staffing, todo, upgrade,
    wall_trust,
};
pub use object::{
    addressing, aggregator, credential, event, join_token, kind, level_in_force, node, pod, pod_requests, policy,
    policy_state, record, replica, selector, slot, taint, token_bucket, toleration, workload, zone,
};
pub use rule::{agent_bound, condition_taint, garbage, node_restriction, reconcile, taint_eviction};
pub use store::{census, change, eviction_queue, load, pod_index, table};
pub use value::{author, cidr, fingerprint, invalid, level, meta, name, quantity, text, time, violation};
