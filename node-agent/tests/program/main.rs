//! Tests of the agent program: flags and file, the Node it registers, its status, and how it ends.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

#[path = "../agent/connection.rs"]
#[allow(dead_code, reason = "other tests freeze connections")]
mod connection;
mod credentials;
mod flags;
mod node;
mod process;
#[path = "../agent/replica.rs"]
#[allow(dead_code, reason = "other tests carry nodes")]
mod replica;
mod running;
#[path = "../agent/tls.rs"]
mod tls;
