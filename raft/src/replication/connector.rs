//! Connector: opens the byte streams from a replica to the others.
//!
//! The consensus network asks a [`Connector`] for a byte stream and never opens a socket itself, so the same code runs
//! over TLS in production and over a simulated network in tests.

use std::io;

use futures::future::BoxFuture;
use muster_lifecycle::replica::ReplicaId;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected, authenticated byte stream over any transport.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Opens streams to replicas.
pub trait Connector: Send + Sync + 'static {
    /// Connects to the replica `target` at `address` (`host:port`).
    ///
    /// The stream must lead to that very replica: an implementation verifies which replica answered, because addresses
    /// are reused and an answer from the wrong replica would corrupt the vote count.
    fn connect(&self, target: ReplicaId, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;
}
