//! The tree in a world of its own: a real State and real tables, a channel for a log, and time that only passes when
//! every task waits.
#![allow(clippy::unwrap_used)]

mod blind;
mod crashes;
mod evictions;
mod feed;
mod leadership;
mod scale;
mod silence;
mod stage;
mod watching;
mod work;
mod zones;
