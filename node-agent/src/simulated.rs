//! Agents without a machine: they register, beat, post and run pods like real ones, and fall silent, die, flap or get
//! stuck on command.

pub use behaviour::{Behaviour, UnknownBehaviour};
pub use fleet::{Fleet, FleetError, NodeBehaviour, Pace, SimulatedNode};
pub use machine::SimulatedMachine;
pub use runtime::RunningPod;
pub use target::Target;

mod behaviour;
mod fleet;
mod machine;
mod runtime;
mod target;
