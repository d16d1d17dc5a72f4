//! TLS connection for the server library that can be frozen: open, and without any progress.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

pub(crate) struct Connection {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) frost: Frost,
}

/// A freeze of all connections: once it is set, nothing is read, written or accepted any more. It is never lifted.
#[derive(Clone, Default)]
pub(crate) struct Frost(Arc<AtomicBool>);

impl Frost {
    pub(crate) fn set_in(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn or<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        if self.is_here() { Poll::Pending } else { poll() }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frost } = &mut *self;
        frost.or(|| Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, frost } = &mut *self;
        frost.or(|| Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frost } = &mut *self;
        frost.or(|| Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frost } = &mut *self;
        frost.or(|| Pin::new(stream).poll_shutdown(cx))
    }
}
