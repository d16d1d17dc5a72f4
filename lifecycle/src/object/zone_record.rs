//! What is stored of a zone: its state, and the bucket that paces its evictions.

use serde::{Deserialize, Serialize};

use crate::judge::eviction::TokenBucket;
use crate::judge::zone::{Zone, ZoneKey, ZoneState};
use crate::object::policy::Rate;
use crate::store::record::RecordKey;
use crate::store::table::Stored;
use crate::value::time::ClusterTime;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ZoneRecord {
    pub key: ZoneKey,
    pub zone: Zone,
    pub bucket: TokenBucket,
    /// Nodes tainted for eviction so far, by all leaders.
    pub evictions: u64,
}

impl ZoneRecord {
    /// The zone has no node any more. The record stays until its bucket is full: a zone that comes back at once must
    /// not find a token that it has just spent (I-04).
    pub fn is_retired(&self) -> bool {
        self.zone.state == ZoneState::Initial
    }

    /// Nothing would be lost by forgetting it.
    pub(crate) fn is_spent(&self, now: ClusterTime) -> bool {
        self.zone.rate == Rate::NEVER || self.bucket.has_token(now)
    }

    pub(crate) fn retired(&self, rate: Rate, now: ClusterTime) -> Self {
        let mut bucket = self.bucket.clone();
        bucket.set_rate(rate, now);
        Self { zone: Zone { state: ZoneState::Initial, since: now, rate }, bucket, ..self.clone() }
    }
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
