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

mod address_index;
pub mod addressing;
mod agenda;
pub mod aggregator;
mod apply;
mod apply_addressing;
mod apply_eviction;
mod apply_lifecycle;
mod apply_node;
mod apply_pod;
mod apply_regime;
mod apply_replica;
mod apply_status;
mod apply_trust;
mod apply_workload;
pub mod builder;
pub mod change;
pub mod chores;
pub mod cidr;
pub mod client;
pub mod command;
pub mod condition_taint;
pub mod credential;
mod derived;
pub mod draft;
pub mod event;
pub mod eviction;
pub mod explain;
pub mod fingerprint;
pub mod garbage;
pub mod health;
pub mod invariant;
pub mod join_token;
mod judge;
pub mod load;
pub mod meta;
pub mod name;
pub mod node;
pub mod node_restriction;
pub mod node_rules;
pub mod oversight;
pub mod placement;
pub mod pod;
pub mod pod_index;
pub mod pod_requests;
pub mod pod_rules;
pub mod policy;
pub mod quantity;
pub mod reconciliation;
pub mod record;
pub mod regime;
pub mod rejection;
pub mod replica;
pub mod selector;
mod settlement;
pub mod sight;
pub mod slot;
pub mod spared;
pub mod staffing;
pub mod state;
pub mod table;
pub mod taint;
pub mod taint_eviction;
pub mod text;
pub mod time;
pub mod toleration;
pub mod workload;
pub mod zone;
pub mod zone_record;

pub use judge::{claim, session};
