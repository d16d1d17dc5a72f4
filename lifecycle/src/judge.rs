//! The leader's judgement: pure decisions over the state, a clock reading and what was heard. Nothing here writes.

pub mod disruption;
pub mod health;
pub mod leader_view;
pub mod oversight;
pub mod placement;
pub mod spared;
pub mod staffing;
pub mod todo;
