//! The leader's judgement: pure decisions over the state, a clock reading and what was heard. Nothing here writes.

pub mod claim;
pub mod clerk_task;
pub mod disruption;
pub mod health;
pub mod leader_view;
pub mod oversight;
pub mod placement;
pub mod session;
pub mod spared;
pub mod staffing;
pub mod todo;
pub mod upgrade;
pub mod wall_trust;
