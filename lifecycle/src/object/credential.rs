//! Node credentials: which key speaks for a node, and whether it may still.
//!
//! A certificate alone does not make a node. Once the cluster has signed a key for a name, only that key is the
//! node's, until it is renewed, revoked, or another machine joins in its place. A node that the cluster never signed
//! for (its certificate was issued by hand) is known by its certificate alone, unless its name was revoked.
//!
//! The record of a name is kept for as long as its Node is there or a certificate for it could be valid. Then it is
//! forgotten, because fleets come and go under ever new names.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::author::Author;
use crate::value::fingerprint::Fingerprint;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp, WallTime, later};

/// How many nodes a cluster can have signed for.
pub const CREDENTIALS_MAX: usize = 1_000_000;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a certificate lasts that is made by hand. The cluster is not told of it.
pub const BY_HAND_LIFE: Duration = DAY.saturating_mul(365);
/// For how long at most a replica lets a node renew a certificate that has expired.
pub const LATE_RENEWAL_MAX: Duration = DAY.saturating_mul(90);
/// How many names are forgotten in one entry.
pub const FORGOTTEN_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credential {
    pub node: Text,
    /// `None` for a node that was revoked before the cluster ever signed for it.
    pub key: Option<Fingerprint>,
    /// The key before a renewal. It is valid until the new one is used, because the answer may be lost.
    pub previous: Option<Fingerprint>,
    /// The key with which the machine came, however often it was renewed since. An open session is known by it.
    pub lineage: Option<Fingerprint>,
    /// Of the certificate, for display.
    pub issued: WallTime,
    pub expires: WallTime,
    pub revoked: Option<Revocation>,
    /// When every certificate that this record is about has expired, those that it shuts out included.
    pub lapses: ClusterTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revocation {
    pub at: Stamp,
    pub by: Author,
}

/// A key that was signed for a node, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedKey {
    pub key: Fingerprint,
    pub issued: WallTime,
    pub expires: WallTime,
}

/// A machine that wants to join, and what it shows.
#[derive(Debug, Clone, Copy)]
pub struct Joining<'a> {
    pub token: &'a str,
    /// The fingerprint of the secret that the machine showed.
    pub secret: Fingerprint,
    pub node: &'a str,
    pub key: Fingerprint,
}

/// The result for a machine that may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    First,
    /// The same machine asks again, because it did not get the answer.
    Again,
}

/// Why a token or a key is not believed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(DistrustKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`Distrust`], without their parameters.")]
pub enum Distrust {
    #[error(
        "token {id} is not known here: it ended long ago, or it is another fleet's; make a new one with `muster token \
         create`"
    )]
    UnknownToken { id: Text },
    #[error(
        "token {id} is another cluster's: it pins another CA; correct the servers, or make a token here with `muster \
         token create`"
    )]
    ForeignToken { id: Text },
    #[error("the secret of token {id} is wrong: was the token copied whole?")]
    WrongSecret { id: Text },
    #[error(
        "token {id} was used already, by node {node:?}: a token is for one machine; make another with `muster token \
         create`, and `muster node revoke {node}` if that was not you"
    )]
    ReplayedToken { id: Text, node: Text },
    #[error("token {id} has expired: make a new one with `muster token create`")]
    ExpiredToken { id: Text },
    #[error("token {id} was revoked: make a new one with `muster token create`")]
    RevokedToken { id: Text },
    #[error("token {id} is for node {meant:?} alone: make one for {node:?} with `muster token create --node {node}`")]
    OtherNode { id: Text, meant: Text, node: Text },
    #[error(
        "node {node:?} is there already: if this machine shall take its place, use a token of `muster token create \
         --node {node}`"
    )]
    NameTaken { node: Text },
    #[error(
        "node {node:?} was revoked by {by}: it may come back with --join and a token of `muster token create --node {node}`"
    )]
    RevokedNode { node: Text, by: Author },
    #[error(
        "this certificate of node {node:?} was replaced by another: a renewal, or a machine that joined in its place; \
         join again with --join and a token of `muster token create --node {node}`"
    )]
    OtherKey { node: Text },
}

// === impl Credential ===

impl Credential {
    /// A node that came with a key that was signed just now.
    pub(crate) fn enrolled(node: Text, signed: SignedKey, lapses: ClusterTime) -> Self {
        let SignedKey { key, issued, expires } = signed;
        Self { key: Some(key), lineage: Some(key), issued, expires, lapses, ..Self::unsigned(node) }
    }

    /// A name that nothing was signed for. It is worth a record only if it is revoked.
    pub(crate) fn unsigned(node: Text) -> Self {
        let (issued, expires) = (WallTime::default(), WallTime::default());
        let (key, previous, lineage, revoked, lapses) = Default::default();
        Self { node, key, previous, lineage, issued, expires, revoked, lapses }
    }

    /// The same node with its next key. A node without a record came with the key by which it asks.
    pub(crate) fn renewed(
        node: Text,
        known: Option<&Self>,
        from: Fingerprint,
        signed: SignedKey,
        lapses: ClusterTime,
    ) -> Self {
        let lineage = known.and_then(|known| known.lineage).or(Some(from));
        Self { previous: Some(from), lineage, ..Self::enrolled(node, signed, lapses) }
    }

    /// From when on the record may be forgotten, unless its Node is there.
    pub fn forgettable_from(&self) -> ClusterTime {
        later(self.lapses, LATE_RENEWAL_MAX)
    }

    pub fn admits(&self, key: &Fingerprint) -> Result<(), Distrust> {
        self.require_unrevoked()?;
        let accepted = [self.key, self.previous].into_iter().flatten().any(|accepted| accepted == *key);
        if accepted { Ok(()) } else { Err(Distrust::OtherKey { node: self.node.clone() }) }
    }

    pub(crate) fn require_unrevoked(&self) -> Result<(), Distrust> {
        match &self.revoked {
            Some(revoked) => Err(Distrust::RevokedNode { node: self.node.clone(), by: revoked.by.clone() }),
            None => Ok(()),
        }
    }
}

impl SignedKey {
    /// When its certificate has expired. The clock of the replica that signed it may be ahead of the others', so the
    /// longer of what both clocks say counts.
    pub(crate) fn lapses(&self, now: Stamp) -> ClusterTime {
        let left = |from: WallTime| u64::try_from(self.expires.0.saturating_sub(from.0)).unwrap_or_default();
        ClusterTime(now.cluster.0.saturating_add(left(self.issued).max(left(now.wall))))
    }
}

impl Versioned for Credential {}

impl Stored for Credential {
    type Key = Text;

    fn key(&self) -> Text {
        self.node.clone()
    }

    fn record_key(node: &Text) -> RecordKey {
        RecordKey::Credential { node: node.clone() }
    }
}

// === impl Distrust ===

impl DistrustKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl Distrust {
    /// In one word, for events and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownToken { .. } => "UnknownToken",
            Self::ForeignToken { .. } => "ForeignToken",
            Self::WrongSecret { .. } => "WrongSecret",
            Self::ReplayedToken { .. } => "ReplayedToken",
            Self::ExpiredToken { .. } => "ExpiredToken",
            Self::RevokedToken { .. } => "RevokedToken",
            Self::OtherNode { .. } => "OtherNode",
            Self::NameTaken { .. } => "NameTaken",
            Self::RevokedNode { .. } => "RevokedNode",
            Self::OtherKey { .. } => "OtherKey",
        }
    }
}
