//! Join tokens: `ID.SECRET.PIN`, one line that a person can copy to a machine.
//!
//! The id finds the token in the state. The secret proves that the token was given. The pin says which cluster to
//! believe: it is the SHA-256 of the public key of the CA that signs the replicas' certificates. So a machine with the
//! token needs nothing else to know the right cluster from a wrong one. The secret is never sent before that has been
//! checked.

use std::fmt;
use std::str::FromStr;

use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::join_token::{ID_LEN, check_id};
use thiserror::Error;

/// 160 bits take 31 characters of 36 kinds; one more as a reserve.
pub const SECRET_LEN: usize = 32;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub secret: String,
    /// The fingerprint of the CA's SubjectPublicKeyInfo.
    pub pin: Fingerprint,
}

/// The part of a token that is wrong. The secret is never quoted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    #[error("a token has three parts, ID.SECRET.PIN; this has {0}: copy the whole last line of `muster token create`")]
    Parts(usize),
    #[error("the first part of the token, its id, is wrong: {ID_LEN} characters of a-z and 0-9 are wanted")]
    Id,
    #[error("the second part of the token, its secret, is wrong: {SECRET_LEN} characters of a-z and 0-9 are wanted")]
    Secret,
    #[error("the third part of the token, the pin of the cluster's CA, is wrong: 64 hexadecimal digits are wanted")]
    Pin,
}

// === impl Token ===

impl Token {
    /// A token of the cluster whose CA has this public key. `dice` must be unpredictable and yield all numbers with
    /// equal probability.
    pub fn draw(pin: Fingerprint, mut dice: impl FnMut() -> u32) -> Self {
        let mut word = |length: usize| (0..length).map(|_| letter(&mut dice)).collect();
        Self { id: word(ID_LEN), secret: word(SECRET_LEN), pin }
    }

    /// The hash of the secret, which the cluster keeps.
    pub fn hash(&self) -> Fingerprint {
        sha256(self.secret.as_bytes())
    }
}

/// A number of `dice` that would favour some letters is drawn again.
fn letter(dice: &mut impl FnMut() -> u32) -> char {
    let kinds = ALPHABET.len() as u32;
    loop {
        let thrown = dice();
        if thrown < u32::MAX - u32::MAX % kinds {
            return char::from(ALPHABET[(thrown % kinds) as usize]);
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id, self.secret, self.pin)
    }
}

impl fmt::Debug for Token {
    /// A secret must not reach a log by way of a derived `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).field("pin", &self.pin).finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [id, secret, pin] = parts.as_slice() else { return Err(TokenError::Parts(parts.len())) };
        check_id(id).map_err(|_| TokenError::Id)?;
        if secret.len() != SECRET_LEN || !secret.bytes().all(|byte| ALPHABET.contains(&byte)) {
            return Err(TokenError::Secret);
        }
        let pin = pin.parse().map_err(|_| TokenError::Pin)?;
        Ok(Self { id: (*id).to_owned(), secret: (*secret).to_owned(), pin })
    }
}

pub fn sha256(bytes: &[u8]) -> Fingerprint {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut print = [0; 32];
    print.copy_from_slice(digest.as_ref());
    Fingerprint(print)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let mut thrown = 0;
        Token::draw(sha256(b"key"), || {
            thrown += 7;
            thrown
        })
    }

    #[test]
    fn a_token_is_one_word_and_parses_back() {
        let text = token().to_string();
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!("  {text}\n").parse(), Ok(token()), "as it is pasted");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'));
    }

    #[test]
    fn an_error_about_a_token_does_not_contain_its_secret() {
        let Token { id, secret, pin } = token();
        let cases = [
            (String::new(), TokenError::Parts(1)),
            (format!("{id}.{secret}"), TokenError::Parts(2)),
            (format!("{id}.{secret}.{pin}.x"), TokenError::Parts(4)),
            (format!("{}.{secret}.{pin}", &id[1..]), TokenError::Id),
            (format!("{}.{secret}.{pin}", id.to_uppercase()), TokenError::Id),
            (format!("{id}.{}.{pin}", &secret[1..]), TokenError::Secret),
            (format!("{id}.{}.{pin}", secret.replace(['a', 'h'], "_")), TokenError::Secret),
            (format!("{id}.{secret}.{}", &pin.to_string()[1..]), TokenError::Pin),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Token>(), Err(error.clone()), "{text}");
            assert!(!error.to_string().contains(&secret));
        }
        assert!(!format!("{:?}", token()).contains(&secret));
    }

    #[test]
    fn letters_of_a_token_are_drawn_uniformly() {
        let mut throws = [u32::MAX, u32::MAX - 1, 35].into_iter();
        assert_eq!(
            letter(&mut || throws.next().unwrap()),
            '9',
            "a number that would favour the first letters is drawn again"
        );
    }

    #[test]
    fn a_hash_is_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b"").to_string(), empty);
    }
}
