//! Observability of a replica: metrics and health over HTTP, log lines, and counts of what its actors do.

pub mod http;
pub mod logging;
pub mod metrics;
pub(crate) mod observer;
