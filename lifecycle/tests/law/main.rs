//! The law as its users see it: batches in, outcomes, changes and records out.
//!
//! Tests are named by the rule they hold to (NV-1 to NV-9, T-1, T-6) or by the behaviour that operators rely on.

mod commands;
mod deletion;
mod fixture;
mod limits;
mod node_rules;
mod properties;
mod rejections;
mod retries;
mod selectors;
