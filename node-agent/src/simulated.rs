//! Simulated agents: they register, beat, post and run pods like real ones, and fall silent, die, flap or get stuck on
//! command.

pub use behaviour::{Behaviour, UnknownBehaviour};
pub use fleet::{ConnectPace, NodeBehaviour, SimulatedFleet, SimulatedFleetError, SimulatedNode};
pub use machine::SimulatedMachine;
pub use runtime::RunningPod;
pub use target::NodeTarget;

mod behaviour;
mod fleet;
mod machine;
mod runtime;
mod target;
