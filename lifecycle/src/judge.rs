//! The leader's judgement: pure decisions over the state, a clock reading and what was heard. Nothing here writes.

pub mod claim;
pub mod session;
