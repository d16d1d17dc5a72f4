//! Little-endian base-128 integers, read strictly: one number has one spelling.

/// A u64 takes at most this many bytes.
pub(crate) const VARINT_MAX: usize = 10;

pub(crate) fn put(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Takes one number off the front. `None` if it is cut off, too large, or padded with needless zeros.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for position in 0..VARINT_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * position as u32;
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || position == 0).then_some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_read_back(value: u64, tail: Vec<u8>) {
            let mut buffer = Vec::new();
            put(&mut buffer, value);
            prop_assert!(buffer.len() <= VARINT_MAX);
            buffer.extend(&tail);
            let mut rest = buffer.as_slice();
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest, tail.as_slice());
        }
    }

    #[test]
    fn padded_truncated_and_oversized_varints_are_refused() {
        let padded = [0x81, 0x00];
        let cut_off = [0x80];
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        for bytes in [padded.as_slice(), &cut_off, &too_large, &[]] {
            assert_eq!(take(&mut &*bytes), None, "{bytes:?}");
        }
    }
}
