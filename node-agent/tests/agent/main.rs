//! Agents against a replica that the test plays by hand: real TLS and HTTP/2 on loopback, every word scripted.

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
