//! Replicas: the controller processes, as the cluster knows them.

use serde::{Deserialize, Serialize};

use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::invalid::Invalid;
use crate::value::level::LevelRange;
use crate::value::meta::Uid;
pub use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::violation::ValueViolation;

/// How many replicas a cluster can have had in all, the retired ones included.
pub const REPLICAS_MAX: usize = 4096;

/// How long a replica's version may be, in bytes.
pub const VERSION_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplicaRecord {
    pub id: ReplicaId,
    /// Made once per data directory. A replica that comes back with another one has lost its vote.
    pub store: Uid,
    pub version: Text,
    pub retired: bool,
    pub levels: LevelRange,
    /// Since when it has run this version with these levels. The log sets it.
    pub announced: ClusterTime,
}

/// What is wrong with a replica that takes no part or must not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReplicaTrouble {
    /// It knows less than it acknowledged, or came back with another store.
    WentBack,
    /// Its state differs from the majority's at an equal log index.
    Diverged,
    /// Its state differs from another one's, and no majority has settled which is right.
    Disputed,
    /// Applying an entry made it panic.
    Halted,
}

impl ReplicaTrouble {
    pub const ALL: [Self; 4] = [Self::WentBack, Self::Diverged, Self::Disputed, Self::Halted];

    /// Its name on the wire and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WentBack => "went-back",
            Self::Diverged => "diverged",
            Self::Disputed => "disputed",
            Self::Halted => "halted",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trouble| trouble.as_str() == name)
    }
}

/// Whether a version can be stored.
pub(crate) fn check_version(version: &Text) -> Result<(), Invalid> {
    match version.len() > VERSION_MAX {
        true => {
            let (bytes, most) = (version.len() as u64, VERSION_MAX as u64);
            Err(Invalid::new("replica.version", ValueViolation::TooManyBytes { bytes, most }))
        }
        false => Ok(()),
    }
}

impl ReplicaRecord {
    /// A replica as it announces itself.
    pub fn new(id: ReplicaId, store: Uid, version: Text, levels: LevelRange) -> Self {
        Self { id, store, version, retired: false, levels, announced: ClusterTime::default() }
    }
}

impl Versioned for ReplicaRecord {}

impl Stored for ReplicaRecord {
    type Key = ReplicaId;

    fn key(&self) -> ReplicaId {
        self.id
    }

    fn record_key(key: &ReplicaId) -> RecordKey {
        RecordKey::Replica { id: *key }
    }
}
