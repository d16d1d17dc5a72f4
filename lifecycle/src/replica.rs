//! A controller process as the cluster knows it.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::meta::Uid;
use crate::record::RecordKey;
use crate::table::Stored;
use crate::text::Text;

/// How many replicas a cluster can have had in all, the retired ones included.
pub const REPLICAS_MAX: usize = 4096;

/// How long a replica's version may be, in bytes.
pub const VERSION_MAX: usize = 256;

/// The id of a replica. It is never given to another one, even after the replica was removed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplicaRecord {
    pub id: ReplicaId,
    /// Made once per data directory. A replica that comes back with another one has lost its vote.
    pub store: Uid,
    pub version: Text,
    pub retired: bool,
}

impl Stored for ReplicaRecord {
    type Key = ReplicaId;

    fn key(&self) -> ReplicaId {
        self.id
    }

    fn record_key(key: &ReplicaId) -> RecordKey {
        RecordKey::Replica { id: *key }
    }
}

// === impl ReplicaId ===

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bare number, as log lines and lists of ids show it.
impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The test suite of the consensus library makes ids from numbers.
impl From<u64> for ReplicaId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl FromStr for ReplicaId {
    type Err = ParseIntError;

    fn from_str(digits: &str) -> Result<Self, ParseIntError> {
        digits.parse().map(Self)
    }
}
