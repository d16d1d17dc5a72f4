//! A connection that is read in sips: after a mouthful it is somebody else's turn.
//!
//! A connection with many streams of small messages wakes as many tasks as it reads messages. Read greedily, it would
//! go on reading before any of them has run; what nobody has taken yet piles up, and HTTP/2 ends a connection with too
//! many small frames unread. And a scheduler's own queue holds a few hundred tasks: more overflow into a shared one,
//! where they wait longest.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct Sips<I> {
    io: I,
    /// How much is read at once. So much is cleared beforehand, however little comes.
    sip: usize,
    /// Something was read since the reader last had to wait.
    drank: bool,
}

// === impl Sips ===

impl<I> Sips<I> {
    pub(crate) fn new(io: I, sip: usize) -> Self {
        Self { io, sip, drank: false }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Sips<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.drank) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.sip.min(buf.remaining());
        let mut sip = ReadBuf::new(buf.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut sip);
        let drunk = sip.filled().len();
        buf.advance(drunk);
        self.drank = drunk > 0;
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Sips<I> {
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
    async fn a_long_read_lets_others_have_their_turn_and_loses_nothing() {
        const SIP: usize = 1_000;
        let long: Vec<u8> = (0..3 * SIP + 7).map(|byte| byte as u8).collect();
        let mut sips = Sips::new(&long[..], SIP);
        let mut mouthful = vec![0; 2 * SIP];
        assert_eq!(sips.read(&mut mouthful).await.unwrap(), SIP);
        assert!(sips.read(&mut mouthful).now_or_never().is_none(), "somebody else's turn");
        // Into memory that nobody has written to yet.
        let mut rest = bytes::BytesMut::new();
        while sips.read_buf(&mut rest).await.unwrap() > 0 {}
        assert_eq!([&mouthful[..SIP], &rest].concat(), long);
    }
}
