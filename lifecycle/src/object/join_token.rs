//! Join tokens: each lets a machine that has no certificate yet ask for one, once.
//!
//! Only a hash of the secret is kept, so neither the state nor a backup of it can be used to join.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::author::Author;
use crate::value::fingerprint::Fingerprint;
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp, later};
use crate::value::violation::AccessViolation;

/// How many tokens a cluster can know.
pub const TOKENS_MAX: usize = 4_096;
pub const ID_LEN: usize = 10;
pub const TTL_MIN: Duration = Duration::from_secs(60);
pub const TTL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long after its end a token is still known, so that a machine that comes with it hears what became of it.
pub const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinToken {
    pub id: Text,
    /// Of its secret.
    pub hash: Fingerprint,
    /// The only node that may join with it; any, if none is named.
    pub node: Option<Text>,
    pub created: Stamp,
    pub created_by: Author,
    pub expires: Stamp,
    pub used: Option<TokenUse>,
    pub revoked: Option<Stamp>,
}

/// The machine that joined with a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenUse {
    pub node: Text,
    pub key: Fingerprint,
    pub at: Stamp,
}

/// The state of a token: it lets a machine join only while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    Open,
    Used,
    Revoked,
    Expired,
}

// === impl JoinToken ===

impl JoinToken {
    pub fn state(&self, now: ClusterTime) -> TokenState {
        match (&self.used, &self.revoked) {
            (Some(_), _) => TokenState::Used,
            (None, Some(_)) => TokenState::Revoked,
            (None, None) if self.expires.cluster <= now => TokenState::Expired,
            (None, None) => TokenState::Open,
        }
    }

    /// Whether the token ended so long ago that no machine needs to hear what became of it.
    pub(crate) fn is_forgettable(&self, now: ClusterTime) -> bool {
        later(self.expires.cluster, REMEMBERED) <= now
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_id(&self.id)?;
        match &self.node {
            Some(node) => name::dns_subdomain(node).map_err(|rule| Invalid::new("node", rule)),
            None => Ok(()),
        }
    }
}

impl Versioned for JoinToken {}

impl Stored for JoinToken {
    type Key = Text;

    fn key(&self) -> Text {
        self.id.clone()
    }

    fn record_key(id: &Text) -> RecordKey {
        RecordKey::JoinToken { id: id.clone() }
    }
}

// === impl TokenState ===

impl TokenState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Used => "Used",
            Self::Revoked => "Revoked",
            Self::Expired => "Expired",
        }
    }
}

pub fn check_id(id: &str) -> Result<(), Invalid> {
    let well_formed = id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if well_formed {
        return Ok(());
    }
    let (id, length) = (Text::clipped(id, 64), ID_LEN as u64);
    Err(Invalid::new("id", AccessViolation::TokenId { id, length }))
}

pub fn check_ttl(ttl: Duration) -> Result<(), Invalid> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(());
    }
    Err(Invalid::new("ttl", AccessViolation::TokenLife { ttl }))
}
