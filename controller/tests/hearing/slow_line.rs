//! Slow connections: everything arrives, but only so many bytes at a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::connector::{Connector, Io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval};

const SLICE: Duration = Duration::from_millis(20);
const SLICES_PER_SECOND: usize = 50;

/// Connects as the inner connector does, over a slow line.
pub struct SlowConnector<C> {
    pub inner: C,
    pub bytes_per_second: usize,
}

struct SlowLine {
    inner: Box<dyn Io>,
    slices: Interval,
    per_slice: usize,
    left: usize,
}

// === impl SlowConnector ===

impl<C: Connector> Connector for SlowConnector<C> {
    fn connect(&self, target: ReplicaId, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (connecting, per_slice) = (self.inner.connect(target, address), self.bytes_per_second / SLICES_PER_SECOND);
        async move {
            let mut slices = interval(SLICE);
            slices.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let line = SlowLine { inner: connecting.await?, slices, per_slice, left: 0 };
            Ok(Box::new(line) as Box<dyn Io>)
        }
        .boxed()
    }
}

// === impl SlowLine ===

impl AsyncRead for SlowLine {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            ready!(self.slices.poll_tick(cx));
            self.left = self.per_slice;
        }
        let mut bytes = vec![0; self.left.min(buf.remaining())];
        let mut few = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut few))?;
        self.left -= few.filled().len();
        buf.put_slice(few.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SlowLine {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
