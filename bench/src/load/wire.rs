//! One HTTP/2 connection of the load generator, driven frame by frame.
//!
//! The `h2` crate would load the machine that is measured: per message it takes as much processor time as the replica
//! that reads it, on the same two cores. The messages of a load generator are known beforehand, so here they are
//! encoded once and only encrypted again, and the answers are short.

mod frame;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::frame::{FrameHeader, FrameKind, flag};

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes that a replica may send before it is told that they were read. It sends little.
const WINDOW: u32 = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// No message of a replica is longer.
const MESSAGE_MAX: usize = 256 << 10;
/// A message begins with whether it is compressed, and its length.
pub(crate) const PREFIX: usize = 5;

/// Calls of the agents' door.
pub(crate) const SESSION: &str = "/muster.v1.Agent/Session";
pub(crate) const CARRY: &str = "/muster.v1.Agent/Carry";

pub(crate) type StreamId = u32;

/// The address to connect to, and the certificate.
#[derive(Clone)]
pub(crate) struct WireTarget {
    pub(crate) address: SocketAddr,
    pub(crate) name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
}

/// How a connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireOptions {
    /// Bytes that a replica may send on a stream before it is told that they were read.
    pub(crate) window: u32,
    /// The socket's buffer in bytes; without it the kernel chooses.
    pub(crate) receive_buffer: Option<u32>,
}

pub(crate) struct Wire {
    io: TlsStream<TcpStream>,
    incoming: BytesMut,
    outgoing: BytesMut,
    window: SendWindow,
    pieces: PartialMessages,
    unread: ReceiveWindow,
    next_stream: StreamId,
    events: VecDeque<WireEvent>,
}

/// Events on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireEvent {
    Message {
        stream: StreamId,
        message: Bytes,
    },
    /// The replica has read all that was sent before this ping.
    Pong(u64),
    /// The replica ended the stream.
    Ended {
        stream: StreamId,
    },
}

/// Parts of messages that are not complete yet.
#[derive(Debug, Default)]
struct PartialMessages {
    partial: BTreeMap<StreamId, BytesMut>,
}

/// Bytes that were read and of which the replica is not told yet.
#[derive(Debug)]
struct ReceiveWindow {
    window: u32,
    connection: u32,
    /// By stream, as in [`SendWindow`].
    streams: Vec<u32>,
    /// Streams of which the replica is never told.
    withheld: BTreeSet<StreamId>,
}

/// Bytes that may still be sent.
#[derive(Debug)]
struct SendWindow {
    connection: i64,
    initial: i64,
    /// By stream: the first is number 1, the second 3, and so on.
    streams: Vec<i64>,
}

// === impl WireTarget ===

impl WireTarget {
    pub(crate) fn new(address: SocketAddr, host: &str, tls: Arc<ClientConfig>) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host:?} is no host"))?;
        Ok(Self { address, name, tls })
    }
}

// === impl WireOptions ===

impl Default for WireOptions {
    fn default() -> Self {
        Self { window: WINDOW, receive_buffer: None }
    }
}

// === impl Wire ===

impl Wire {
    pub(crate) async fn connect(target: &WireTarget) -> Result<Self> {
        Self::connect_with(target, WireOptions::default()).await
    }

    pub(crate) async fn connect_with(target: &WireTarget, options: WireOptions) -> Result<Self> {
        let connecting = async {
            let socket = TcpSocket::new_v4()?;
            if let Some(bytes) = options.receive_buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            let tcp = socket.connect(target.address).await?;
            tcp.set_nodelay(true)?;
            TlsConnector::from(Arc::clone(&target.tls)).connect(target.name.clone(), tcp).await
        };
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        let late = || format!("no connection to {} within {} s", target.address, CONNECT_TIMEOUT.as_secs());
        let io = connected.with_context(late)?.with_context(|| format!("cannot connect to {}", target.address))?;
        let mut outgoing = BytesMut::with_capacity(1 << 10);
        frame::put_preface(&mut outgoing, options.window);
        Ok(Self {
            io,
            incoming: BytesMut::new(),
            outgoing,
            window: SendWindow {
                connection: frame::DEFAULT_WINDOW,
                initial: frame::DEFAULT_WINDOW,
                streams: Vec::new(),
            },
            pieces: PartialMessages::default(),
            unread: ReceiveWindow::new(options.window),
            next_stream: 1,
            events: VecDeque::new(),
        })
    }

    /// Begins a call; nothing is sent before [`Wire::next`] is polled.
    pub(crate) fn open(&mut self, path: &str) -> StreamId {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.window.streams.push(self.window.initial);
        self.unread.streams.push(0);
        frame::put_request(&mut self.outgoing, stream, path);
        stream
    }

    /// Whether so many bytes of messages, prefixes included, may be sent on `stream` now.
    pub(crate) fn has_room(&self, stream: StreamId, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.window.connection >= bytes && self.window.streams.get(place(stream)).is_some_and(|room| *room >= bytes)
    }

    /// Bytes that wait to be written.
    pub(crate) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Sends an encoded message. The caller has checked that there is room.
    pub(crate) fn send(&mut self, stream: StreamId, message: &[u8]) {
        self.window.take(stream, message.len() + PREFIX);
        frame::put_message(&mut self.outgoing, stream, message);
    }

    /// Sends a round, encoded beforehand. The stream at `asking`, if any, sends its other message.
    pub(crate) fn send_round(&mut self, round: &BeatRound, asking: Option<usize>) {
        round.streams.iter().for_each(|stream| self.window.take(*stream, round.bytes_each));
        let Some(asking) = asking.filter(|asking| *asking < round.len()) else {
            return self.outgoing.extend_from_slice(&round.frames);
        };
        let (at, length) = (asking * round.frame, round.frame);
        self.outgoing.extend_from_slice(&round.frames[..at]);
        frame::put_message(&mut self.outgoing, round.streams[asking], &round.other);
        self.outgoing.extend_from_slice(&round.frames[at + length..]);
    }

    pub(crate) fn ping(&mut self, number: u64) {
        frame::put_ping(&mut self.outgoing, number, 0);
    }

    /// From now on the replica is not told what was read of `stream`, so that it soon may send nothing more there.
    pub(crate) fn withhold(&mut self, stream: StreamId) {
        self.unread.withheld.insert(stream);
    }

    /// Writes all that is queued and reads nothing. Nothing is lost when the future is dropped.
    pub(crate) async fn write(&mut self) -> Result<()> {
        poll_fn(|context| {
            let written = self.poll_write(context);
            if written.is_ok() && !self.outgoing.is_empty() { Poll::Pending } else { Poll::Ready(written) }
        })
        .await
    }

    /// Writes what is queued and waits for the next event. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<WireEvent> {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WireEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Ok(event));
            }
            self.poll_write(context)?;
            ready!(self.poll_read(context))?;
            self.parse()?;
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Result<()> {
        while !self.outgoing.is_empty() {
            match Pin::new(&mut self.io).poll_write(context, &self.outgoing)? {
                Poll::Ready(written) => self.outgoing.advance(written),
                Poll::Pending => break,
            }
        }
        let _ = Pin::new(&mut self.io).poll_flush(context)?;
        Ok(())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(anyhow!("the replica closed the connection")));
        }
        self.incoming.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    fn parse(&mut self) -> Result<()> {
        while let Some((head, payload)) = frame::take(&mut self.incoming)? {
            self.frame(&head, payload)?;
        }
        if self.incoming.is_empty() {
            // Idle connections keep no buffer.
            self.incoming = BytesMut::new();
        }
        Ok(())
    }

    fn frame(&mut self, head: &FrameHeader, mut payload: Bytes) -> Result<()> {
        match head.kind {
            FrameKind::Data => self.data(head, &payload)?,
            FrameKind::Headers if head.has(flag::END_STREAM) => self.ended(head.stream),
            FrameKind::Reset => self.ended(head.stream),
            FrameKind::Settings if !head.has(flag::ACK) => self.settings(&payload)?,
            FrameKind::Ping if head.has(flag::ACK) => self.events.push_back(WireEvent::Pong(payload.try_get_u64()?)),
            FrameKind::Ping => frame::put_ping(&mut self.outgoing, payload.try_get_u64()?, flag::ACK),
            FrameKind::GoAway => {
                let (_, code) = (payload.try_get_u32()?, payload.try_get_u32()?);
                bail!("the replica went away: code {code}, {}", String::from_utf8_lossy(&payload));
            }
            FrameKind::WindowUpdate => self.window.add(head.stream, payload.try_get_u32()?),
            FrameKind::Headers | FrameKind::Settings | FrameKind::Other => {}
        }
        Ok(())
    }

    fn data(&mut self, head: &FrameHeader, payload: &Bytes) -> Result<()> {
        let stream = head.stream;
        let messages = self.pieces.add(stream, payload)?;
        self.events.extend(messages.into_iter().map(|message| WireEvent::Message { stream, message }));
        self.unread.add(head, &mut self.outgoing);
        if head.has(flag::END_STREAM) {
            self.ended(head.stream);
        }
        Ok(())
    }

    fn ended(&mut self, stream: StreamId) {
        self.pieces.partial.remove(&stream);
        self.events.push_back(WireEvent::Ended { stream });
    }

    fn settings(&mut self, payload: &[u8]) -> Result<()> {
        if let Some(initial) = frame::initial_window(payload) {
            self.window.resize(i64::from(initial));
        }
        frame::put_settings_ack(&mut self.outgoing);
        Ok(())
    }
}

// === impl PartialMessages ===

impl PartialMessages {
    /// The messages that are complete with this payload. Most come in a frame of their own; after a partial message
    /// the next one begins anywhere.
    fn add(&mut self, stream: StreamId, payload: &Bytes) -> Result<Vec<Bytes>> {
        if !self.partial.contains_key(&stream)
            && let Some(message) = whole(payload)?
        {
            return Ok(vec![message]);
        }
        self.partial.entry(stream).or_default().extend_from_slice(payload);
        let mut messages = Vec::new();
        while let Some(message) = self.complete(stream)? {
            messages.push(message);
        }
        Ok(messages)
    }

    fn complete(&mut self, stream: StreamId) -> Result<Option<Bytes>> {
        let Some(partial) = self.partial.get_mut(&stream) else { return Ok(None) };
        let Some(length) = length(partial)?.filter(|length| PREFIX + length <= partial.len()) else {
            return Ok(None);
        };
        let message = partial.split_to(PREFIX + length).freeze().slice(PREFIX..);
        if partial.is_empty() {
            self.partial.remove(&stream);
        }
        Ok(Some(message))
    }
}

/// The message, if `payload` is exactly one.
fn whole(payload: &Bytes) -> Result<Option<Bytes>> {
    let length = length(payload)?;
    Ok(length.filter(|length| PREFIX + length == payload.len()).map(|_| payload.slice(PREFIX..)))
}

/// The length of the message that `bytes` begin with.
fn length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    ensure!(prefix[0] == 0 && length <= MESSAGE_MAX, "a message of {length} bytes cannot be read");
    Ok(Some(length))
}

// === impl ReceiveWindow ===

impl ReceiveWindow {
    fn new(window: u32) -> Self {
        Self { window, connection: 0, streams: Vec::new(), withheld: BTreeSet::new() }
    }

    /// Tells the replica how much was read, once that is worth a frame.
    fn add(&mut self, head: &FrameHeader, outgoing: &mut BytesMut) {
        self.connection += head.length;
        if self.connection >= self.window / 4 {
            frame::put_window(outgoing, 0, std::mem::take(&mut self.connection));
        }
        if self.withheld.contains(&head.stream) {
            return;
        }
        let Some(unread) = self.streams.get_mut(place(head.stream)) else { return };
        *unread += head.length;
        if *unread >= self.window / 4 && !head.has(flag::END_STREAM) {
            frame::put_window(outgoing, head.stream, std::mem::take(unread));
        }
    }
}

// === impl SendWindow ===

impl SendWindow {
    fn take(&mut self, stream: StreamId, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.connection -= bytes;
        if let Some(room) = self.streams.get_mut(place(stream)) {
            *room -= bytes;
        }
    }

    fn add(&mut self, stream: StreamId, bytes: u32) {
        match stream {
            0 => self.connection += i64::from(bytes),
            stream => {
                if let Some(room) = self.streams.get_mut(place(stream)) {
                    *room += i64::from(bytes);
                }
            }
        }
    }

    fn resize(&mut self, initial: i64) {
        let more = initial - self.initial;
        self.initial = initial;
        self.streams.iter_mut().for_each(|room| *room += more);
    }
}

fn place(stream: StreamId) -> usize {
    (stream / 2) as usize
}

/// One short message on each of many streams, ready to be written.
#[derive(Debug, Clone)]
pub(crate) struct BeatRound {
    frames: Bytes,
    /// Bytes of each stream's frame.
    frame: usize,
    streams: Vec<StreamId>,
    /// The message that one of them may send instead.
    other: Vec<u8>,
    /// Bytes allowed for each, whichever of the two it sends.
    bytes_each: usize,
}

impl BeatRound {
    pub(crate) fn new(streams: Vec<StreamId>, message: &[u8], other: &[u8]) -> Self {
        let mut frames = BytesMut::new();
        streams.iter().for_each(|stream| frame::put_message(&mut frames, *stream, message));
        let (frame, bytes_each) = (frames.len() / streams.len().max(1), message.len().max(other.len()) + PREFIX);
        Self { frames: frames.freeze(), frame, streams, other: other.to_vec(), bytes_each }
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether it may be sent on `wire` as a whole.
    pub(crate) fn fits(&self, wire: &Wire) -> bool {
        let all = i64::try_from(self.streams.len() * self.bytes_each).unwrap_or(i64::MAX);
        wire.window.connection >= all && self.streams.iter().all(|stream| wire.has_room(*stream, self.bytes_each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_wherever_frames_are_split() {
        let mut sent = BytesMut::new();
        let messages = [vec![0xff; 300], vec![7; 20], vec![0xee; 500]];
        for message in &messages {
            frame::put_message(&mut sent, 1, message);
        }
        let frames = std::iter::from_fn(|| frame::take(&mut sent).unwrap());
        let bytes: Vec<u8> = frames.flat_map(|(_, payload)| payload.to_vec()).collect();
        for cut in [1, 4, 100, 305, 330, 831] {
            let mut pieces = PartialMessages::default();
            let found = bytes.chunks(cut).flat_map(|payload| pieces.add(1, &Bytes::copy_from_slice(payload)).unwrap());
            assert!(found.eq(messages.iter().map(|message| Bytes::copy_from_slice(message))), "cut every {cut} bytes");
        }
    }

    /// Streams of the window updates that are sent when `times` frames of `length` bytes come on `stream`.
    fn told(unread: &mut ReceiveWindow, stream: StreamId, length: usize, times: usize) -> Vec<StreamId> {
        let (mut incoming, mut outgoing) = (BytesMut::new(), BytesMut::new());
        for _ in 0..times {
            frame::put_message(&mut incoming, stream, &vec![0; length - PREFIX]);
            let taken = frame::take(&mut incoming).unwrap();
            unread.add(&taken.unwrap().0, &mut outgoing);
        }
        std::iter::from_fn(|| frame::take(&mut outgoing).unwrap()).map(|(head, _)| head.stream).collect()
    }

    #[test]
    fn window_updates_are_sent_unless_they_are_withheld() {
        let mut unread = ReceiveWindow::new(400);
        unread.streams = vec![0, 0];
        assert_eq!(told(&mut unread, 1, 50, 2), [0, 1]);
        unread.withheld.insert(1);
        assert_eq!(told(&mut unread, 1, 50, 4), [0, 0], "the connection goes on");
        assert_eq!(told(&mut unread, 3, 50, 2), [0, 3], "and so do the others");
    }
}
