//! Tests of agents against a scripted replica: real TLS and HTTP/2 on loopback.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

mod aggregator;
mod connection;
mod fleet;
mod machine;
mod pods;
mod replica;
mod session;
mod silence;
mod tls;
