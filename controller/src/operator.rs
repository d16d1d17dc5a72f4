//! The operators' side of a replica: the service on the client door, lists, watches, views and explanations.

mod collection;
pub(crate) mod explaining;
mod overview;
pub(crate) mod pulses;
pub mod service;
mod view;
mod watching;
