//! `muster simulate`: plays a scenario in virtual time with the code that decides in a real cluster.
//!
//! ```text
//!   file --reading--> Scenario --play--> World (State, pulses, three replicas) --Occurrence--> json | timeline
//! ```
//!
//! Operators ask it what a setting would do when a zone dies; the project's tests ask it whether the rules hold. It
//! is deterministic: the same file gives the same output, byte for byte.

mod located;
pub mod occurrence;
pub mod play;
mod reading;
pub mod scenario;
pub mod timeline;
pub mod world;

pub use self::located::Fault;
