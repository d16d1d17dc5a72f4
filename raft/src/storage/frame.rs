//! Frame of one record on disk: format byte, checksum, payload.
//!
//! The checksum covers the key as well as the payload, so that a record that turns up under another key (a misdirected
//! write, a damaged tree page) is as visible as a flipped bit.
//!
//! ```text
//! | format: u8 | crc32 of (format, key length, key, payload): u32 LE | payload ... |
//! ```

use crc32fast::Hasher;
use thiserror::Error;

/// Raised when the meaning of payloads changes; see the data version in the log store for whole stores.
pub const FORMAT: u8 = 1;
const HEAD: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("the record is {found} bytes long, shorter than its {HEAD}-byte head")]
    Short { found: usize },
    #[error("the record has format {found}, this version reads format {FORMAT}")]
    Format { found: u8 },
    #[error("the checksum is {found:08x}, the content gives {expected:08x}")]
    Checksum { found: u32, expected: u32 },
}

/// Wraps a payload for storage under `key`.
pub fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.push(FORMAT);
    frame.extend_from_slice(&checksum(FORMAT, key, payload).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The payload of a frame found under `key`, if both are what was written.
pub fn open<'a>(key: &[u8], frame: &'a [u8]) -> Result<&'a [u8], FrameError> {
    let short = FrameError::Short { found: frame.len() };
    let (head, payload) = frame.split_at_checked(HEAD).ok_or(short.clone())?;
    let &[format, a, b, c, d] = head else { return Err(short) };
    let found = u32::from_le_bytes([a, b, c, d]);
    let expected = checksum(format, key, payload);
    if found != expected {
        return Err(FrameError::Checksum { found, expected });
    }
    if format != FORMAT {
        return Err(FrameError::Format { found: format });
    }
    Ok(payload)
}

fn checksum(format: u8, key: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&[format]);
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_of_a_frame_are_pinned() {
        let frame = seal(&7u64.to_be_bytes(), b"muster");
        assert_eq!(frame, [&[1, 0x29, 0xe5, 0x9c, 0x9c], b"muster".as_slice()].concat());
    }

    #[test]
    fn a_frame_of_another_format_is_named_as_such() {
        let mut frame = vec![9];
        frame.extend_from_slice(&checksum(9, b"key", b"x").to_le_bytes());
        frame.push(b'x');
        assert_eq!(open(b"key", &frame), Err(FrameError::Format { found: 9 }));
    }

    proptest! {
        #[test]
        fn a_sealed_frame_opens_to_its_payload(key: Vec<u8>, payload: Vec<u8>) {
            let frame = seal(&key, &payload);
            prop_assert_eq!(open(&key, &frame), Ok(payload.as_slice()));
        }

        #[test]
        fn any_flipped_bit_and_any_truncation_is_detected(payload: Vec<u8>, at: prop::sample::Index, cut: prop::sample::Index) {
            let frame = seal(b"key", &payload);
            let mut flipped = frame.clone();
            let bit = at.index(frame.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(open(b"key", &flipped).is_err());
            prop_assert!(open(b"key", &frame[..cut.index(frame.len())]).is_err());
            prop_assert!(open(b"kez", &frame).is_err());
        }
    }
}
