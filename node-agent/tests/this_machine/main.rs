//! Facts and conditions of real machines: this one, small filesystems, real programs, and machines that are made up.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

mod checks;
mod disk;
mod facts;
mod made_up;
mod watching;
