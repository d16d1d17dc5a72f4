//! Fingerprint of a key or a secret: its SHA-256, as 32 bytes. Other crates compute it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::text::Text;

const BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; BYTES]);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a SHA-256: 64 hexadecimal digits, lower case")]
pub struct FingerprintError {
    pub text: Text,
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// There is one spelling only, so that equal fingerprints have equal texts.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let wrong = || FingerprintError { text: Text::clipped(text, 80) };
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return Err(wrong());
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().try_fold(0, |sum, digit| Some(sum << 4 | nibble(*digit)?)).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_printed_as_it_is_read() {
        let text = "00ff".repeat(16);
        let print: Fingerprint = text.parse().unwrap();
        assert_eq!((print.to_string(), print.0[1]), (text.clone(), 0xff));
        for wrong in ["", "00", &text.to_uppercase(), &text[1..], &text.replace('f', "g"), &"ä".repeat(32)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
