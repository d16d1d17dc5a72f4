//! Agents without a machine: they register, beat and post like real ones, and fall silent, die or flap on command.

pub use behaviour::{Behaviour, UnknownBehaviour};
pub use fleet::{Fleet, FleetError, NodeBehaviour, Pace, SimulatedNode};
pub use machine::SimulatedMachine;
pub use target::Target;

mod behaviour;
mod fleet;
mod machine;
mod target;
