//! Waking streams: the registry of sessions, and the tasks that make a stream look at the state again.
//!
//! A task with news wakes the stream; the stream reads off the state what the news mean. So news need no queue, and a
//! hundred thousand streams can be told something without waiting for one of them.

pub(crate) mod entry;
pub(crate) mod following;
pub(crate) mod lagging;
pub(crate) mod registry;
pub(crate) mod relocate;
