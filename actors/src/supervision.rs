//! Supervision: the children of an actor, how they are told things, when they are rebuilt, and their timers.

pub(crate) mod alarm;
pub(crate) mod children;
pub(crate) mod letterbox;
pub(crate) mod restart;
