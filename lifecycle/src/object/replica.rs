//! Replicas: the controller processes, as the cluster knows them.

use serde::{Deserialize, Serialize};

use crate::object::record::RecordKey;
use crate::object::record::Stored;
use crate::value::meta::Uid;
pub use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;

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
