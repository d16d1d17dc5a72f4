//! Agents' streams: one node per stream, or many nodes of an aggregator on one.

pub(crate) mod aggregator;
pub(crate) mod binding;
pub(crate) mod caller;
pub(crate) mod node;
mod orders;
mod outbound;
mod pending;
pub(crate) mod refusal;
pub(crate) mod terms;
