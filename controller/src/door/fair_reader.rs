//! A connection that is read in bounded pieces: after each piece it yields to other tasks.
//!
//! A connection with many streams of small messages wakes as many tasks as it reads messages. Read greedily, it goes on
//! reading before any of these tasks has run. Unread messages then pile up, and HTTP/2 ends a connection with too many
//! small frames unread. A scheduler's own queue also holds only a few hundred tasks: the rest overflow into a shared
//! queue, where they wait longest.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct FairReader<I> {
    io: I,
    /// The bytes read at once. The buffer is cleared to this length before each read.
    piece: usize,
    /// Bytes were read since the reader last yielded.
    has_read: bool,
}

// === impl FairReader ===

impl<I> FairReader<I> {
    pub(crate) fn new(io: I, piece: usize) -> Self {
        Self { io, piece, has_read: false }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for FairReader<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.piece.min(buf.remaining());
        let mut piece = ReadBuf::new(buf.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut piece);
        let read = piece.filled().len();
        buf.advance(read);
        self.has_read = read > 0;
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FairReader<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_long_read_yields_to_other_tasks_and_loses_nothing() {
        const PIECE: usize = 1_000;
        let long: Vec<u8> = (0..3 * PIECE + 7).map(|byte| byte as u8).collect();
        let mut reader = FairReader::new(&long[..], PIECE);
        let mut buffer = vec![0; 2 * PIECE];
        assert_eq!(reader.read(&mut buffer).await.unwrap(), PIECE);
        assert!(reader.read(&mut buffer).now_or_never().is_none(), "it yields to other tasks");
        // The buffer has no initialised memory.
        let mut rest = bytes::BytesMut::new();
        while reader.read_buf(&mut rest).await.unwrap() > 0 {}
        assert_eq!([&buffer[..PIECE], &rest].concat(), long);
    }
}
