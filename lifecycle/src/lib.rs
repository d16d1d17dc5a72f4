//! The law: pure decisions over replicated state.
//!
//! ```text
//!   Batch (stamp + commands) --> State::apply --> Applied
//!                                  |    |           outcomes: one per command
//!          node_rules, taint, draft     |           changes:  what watchers see, in revision order
//!          (what is legal)              |           touched:  which records to write down
//!                                       v
//!          Table per kind (nodes, events, replicas, clients, free slots) <--> records (key, bytes)
//! ```
//!
//! What a node's own state entails (`settlement`) is done inside every change. What takes a clock, a rate or an ear is
//! judged by the cores (`health`, `zone`, `eviction`, under the `policy` in force), proposed by whoever asks
//! [`oversight`] what there is to do, and told to people by [`explain`].
//!
//! Nothing here awaits, reads a clock, does IO or rolls dice. Time is an argument, maps are ordered, and
//! [`State::apply`](state::State::apply) gives the same answer on every replica that is given the same log.

mod apply;
pub mod command;
pub mod explain;
pub mod invariant;
mod judge;
mod object;
pub mod rejection;
pub mod rule;
pub mod state;
mod store;
mod value;

pub use command::client;
pub use judge::{
    claim, clerk_task, disruption, health, leader_view, oversight, placement, session, spared, staffing, todo,
};
pub use object::{
    addressing, aggregator, credential, event, join_token, kind, node, pod, pod_requests, policy, policy_state, record,
    replica, selector, slot, taint, token_bucket, toleration, workload, zone,
};
pub use rule::{condition_taint, garbage, node_restriction, reconcile, taint_eviction};
pub use store::{census, change, eviction_queue, load, pod_index, table};
pub use value::{cidr, fingerprint, invalid, meta, name, quantity, text, time};
