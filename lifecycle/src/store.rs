//! Tables that hold the objects, the records they are stored as, and the indexes that follow from them.

pub(crate) mod address_index;
pub(crate) mod agenda;
pub mod census;
pub mod change;
pub(crate) mod derived;
pub mod eviction_queue;
pub mod load;
pub mod pod_index;
pub mod table;
