//! What is stored of a zone: its state, and the bucket that paces its evictions.

use serde::{Deserialize, Serialize};

use crate::eviction::TokenBucket;
use crate::record::RecordKey;
use crate::table::Stored;
use crate::zone::{Zone, ZoneKey};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ZoneRecord {
    pub key: ZoneKey,
    pub zone: Zone,
    pub bucket: TokenBucket,
    /// Nodes tainted for eviction so far, by all leaders.
    pub evictions: u64,
}

impl Stored for ZoneRecord {
    type Key = ZoneKey;

    fn key(&self) -> ZoneKey {
        self.key.clone()
    }

    fn record_key(key: &ZoneKey) -> RecordKey {
        RecordKey::Zone { region: key.region.clone(), zone: key.zone.clone() }
    }
}
