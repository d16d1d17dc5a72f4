//! Rules: what makes an object valid, and what follows from it at once.

pub mod agent_bound;
pub mod condition_taint;
pub(crate) mod consequences;
pub mod garbage;
pub mod node;
pub mod node_restriction;
pub mod pod;
pub mod reconcile;
pub mod taint_eviction;
