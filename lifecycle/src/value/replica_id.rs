//! The id of a replica, a controller process of the cluster.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a replica. It is never given to another one, even after the replica was removed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u64);

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
