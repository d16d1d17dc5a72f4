//! Waking streams: the registry of sessions, and what makes a stream look at the state again.

pub(crate) mod entry;
pub(crate) mod following;
pub(crate) mod lagging;
pub(crate) mod registry;
pub(crate) mod relocate;
