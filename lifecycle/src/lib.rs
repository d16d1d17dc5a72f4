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
//! Nothing here awaits, reads a clock, does IO or rolls dice. Time is an argument, maps are ordered, and
//! [`State::apply`](state::State::apply) gives the same answer on every replica that is given the same log.

mod apply;
mod apply_node;
mod apply_replica;
pub mod builder;
pub mod change;
pub mod client;
pub mod command;
pub mod condition_taint;
pub mod draft;
pub mod event;
pub mod eviction;
pub mod health;
pub mod invariant;
pub mod meta;
pub mod name;
pub mod node;
pub mod node_rules;
pub mod policy;
pub mod quantity;
pub mod record;
pub mod rejection;
pub mod replica;
pub mod selector;
pub mod slot;
pub mod state;
pub mod table;
pub mod taint;
pub mod text;
pub mod time;
pub mod zone;
