//! HTTP/2 frames, as far as a gRPC client needs them: RFC 9113, and RFC 7541 for the one header block that is sent.

use anyhow::{Result, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::StreamId;

pub(super) const DEFAULT_WINDOW: i64 = 65_535;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
/// The longest that any peer accepts by default.
const FRAME_MAX: usize = 16 << 10;
const INITIAL_WINDOW_SETTING: u16 = 4;
const SETTING: usize = 6;

pub(super) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Data,
    Headers,
    Reset,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: u32,
    pub(super) kind: FrameKind,
    flags: u8,
    pub(super) stream: StreamId,
}

// === impl FrameHeader ===

impl FrameHeader {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

// === impl FrameKind ===

impl FrameKind {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            3 => Self::Reset,
            4 => Self::Settings,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            _ => Self::Other,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Headers => 1,
            Self::Reset => 3,
            Self::Settings => 4,
            Self::Ping => 6,
            Self::GoAway => 7,
            Self::WindowUpdate => 8,
            Self::Other => u8::MAX,
        }
    }
}

/// The next whole frame, if there is one.
pub(super) fn take(bytes: &mut BytesMut) -> Result<Option<(FrameHeader, Bytes)>> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    let head = FrameHeader { length, kind: FrameKind::of(head[3]), flags: head[4], stream };
    ensure!(length as usize <= FRAME_MAX, "a frame of {length} bytes was not asked for");
    if bytes.len() < HEAD + length as usize {
        return Ok(None);
    }
    bytes.advance(HEAD);
    Ok(Some((head, bytes.split_to(length as usize).freeze())))
}

/// The connection preface: `window` bytes may be sent to each stream and sixteen times that to all.
pub(super) fn put_preface(out: &mut BytesMut, window: u32) {
    out.extend_from_slice(PREFACE);
    put_head(out, SETTING, FrameKind::Settings, 0, 0);
    out.put_u16(INITIAL_WINDOW_SETTING);
    out.put_u32(window);
    put_window(out, 0, 16 * window);
}

pub(super) fn put_settings_ack(out: &mut BytesMut) {
    put_head(out, 0, FrameKind::Settings, flag::ACK, 0);
}

pub(super) fn put_ping(out: &mut BytesMut, number: u64, flags: u8) {
    put_head(out, 8, FrameKind::Ping, flags, 0);
    out.put_u64(number);
}

pub(super) fn put_window(out: &mut BytesMut, stream: StreamId, bytes: u32) {
    put_head(out, 4, FrameKind::WindowUpdate, 0, stream);
    out.put_u32(bytes);
}

/// One gRPC message, in as many frames as it takes.
pub(super) fn put_message(out: &mut BytesMut, stream: StreamId, message: &[u8]) {
    let mut prefixed = BytesMut::with_capacity(message.len() + super::PREFIX);
    prefixed.put_u8(0);
    prefixed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    prefixed.extend_from_slice(message);
    for part in prefixed.chunks(FRAME_MAX) {
        put_head(out, part.len(), FrameKind::Data, 0, stream);
        out.extend_from_slice(part);
    }
}

/// The headers of a gRPC call, spelt out, so that neither side keeps a table of them.
pub(super) fn put_request(out: &mut BytesMut, stream: StreamId, path: &str) {
    // Indexes of the static table: POST is 3, https is 7.
    let mut block = vec![0x83, 0x87];
    put_literal(&mut block, b":path", path.as_bytes());
    put_literal(&mut block, b":authority", b"muster");
    put_literal(&mut block, b"content-type", b"application/grpc");
    put_literal(&mut block, b"te", b"trailers");
    put_head(out, block.len(), FrameKind::Headers, flag::END_HEADERS, stream);
    out.extend_from_slice(&block);
}

/// Both are shorter than 127 bytes.
fn put_literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        block.extend_from_slice(text);
    }
}

/// The window of a new stream, if a SETTINGS frame sets it.
pub(super) fn initial_window(payload: &[u8]) -> Option<u32> {
    let settings = payload.chunks_exact(SETTING);
    let window = |mut setting: &[u8]| (setting.get_u16() == INITIAL_WINDOW_SETTING).then(|| setting.get_u32());
    settings.filter_map(window).next_back()
}

fn put_head(out: &mut BytesMut, length: usize, kind: FrameKind, flags: u8, stream: StreamId) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.put_u32(length << 8 | u32::from(kind.byte()));
    out.put_u8(flags);
    out.put_u32(stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_frames_are_read_and_equal_those_written() {
        let mut bytes = BytesMut::new();
        put_message(&mut bytes, 7, b"beat");
        put_ping(&mut bytes, 42, flag::ACK);
        let mut cut = BytesMut::from(&bytes[..12]);
        assert!(take(&mut cut).unwrap().is_none());
        let (head, payload) = take(&mut bytes).unwrap().unwrap();
        assert_eq!((head.kind, head.stream, &payload[..]), (FrameKind::Data, 7, &b"\0\0\0\0\x04beat"[..]));
        let (head, payload) = take(&mut bytes).unwrap().unwrap();
        assert!(head.has(flag::ACK) && head.kind == FrameKind::Ping);
        assert_eq!(payload[..], 42_u64.to_be_bytes());
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_long_message_takes_several_frames() {
        let mut bytes = BytesMut::new();
        put_message(&mut bytes, 1, &vec![1; FRAME_MAX]);
        let lengths: Vec<u32> = std::iter::from_fn(|| take(&mut bytes).unwrap()).map(|(head, _)| head.length).collect();
        assert_eq!(lengths, [FRAME_MAX as u32, 5]);
    }

    #[test]
    fn the_last_setting_of_the_window_counts() {
        let mut bytes = BytesMut::new();
        put_preface(&mut bytes, 1234);
        bytes.advance(PREFACE.len());
        let (head, payload) = take(&mut bytes).unwrap().unwrap();
        assert_eq!((head.kind, initial_window(&payload)), (FrameKind::Settings, Some(1234)));
        assert_eq!(initial_window(&[]), None);
    }
}
