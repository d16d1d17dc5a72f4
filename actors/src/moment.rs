//! The moment of judging, under the name by which the tree knows it.

pub use muster_pulse::moment::Moment;
