//! Zones: their key, their state, and the record with the bucket that paces their evictions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::object::policy::Rate;
use crate::object::record::{RecordKey, Stored, Versioned};
use crate::object::token_bucket::TokenBucket;
use crate::value::meta::Pairs;
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp};

/// A node with this label, whatever its value, does not count when its zone is judged (Z-4).
pub const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// The older label and the stable one that it overrides.
const REGION_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];

/// The name of the zone of unlabelled nodes. No other zone has it: their names have a slash.
const DEFAULT_ZONE: &str = "default";

/// The region and zone of a node. Both parts are empty for nodes without labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ZoneKey {
    pub region: Text,
    pub zone: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a zone: write region/zone, or {DEFAULT_ZONE} for nodes without topology labels")]
pub struct ZoneKeyError {
    pub text: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ZoneState {
    /// Not judged yet.
    Initial,
    Normal,
    PartialDisruption,
    FullDisruption,
}

/// The remembered state of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Zone {
    pub state: ZoneState,
    /// On both clocks: cluster time stands still while the whole cluster is down, the calendar does not.
    pub since: Stamp,
    pub rate: Rate,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ZoneRecord {
    pub key: ZoneKey,
    pub zone: Zone,
    pub bucket: TokenBucket,
    /// Nodes tainted for eviction so far, by all leaders.
    pub evictions: u64,
}

// === impl ZoneKey ===

impl ZoneKey {
    /// Z-1: the older label wins if it is there at all, even when empty.
    pub fn from_labels(labels: &Pairs) -> Self {
        let value = |keys: [&str; 2]| keys.into_iter().find_map(|key| labels.get(key)).cloned().unwrap_or_default();
        Self { region: value(REGION_LABELS), zone: value(ZONE_LABELS) }
    }

    pub fn is_default(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty()
    }
}

impl fmt::Display for ZoneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() { f.pad(DEFAULT_ZONE) } else { f.pad(&format!("{}/{}", self.region, self.zone)) }
    }
}

impl FromStr for ZoneKey {
    type Err = ZoneKeyError;

    fn from_str(text: &str) -> Result<Self, ZoneKeyError> {
        match text.split_once('/') {
            _ if text == DEFAULT_ZONE => Ok(Self::default()),
            Some((region, zone)) if text != "/" && !zone.contains('/') => {
                Ok(Self { region: Text::from(region), zone: Text::from(zone) })
            }
            Some(_) | None => Err(ZoneKeyError { text: Text::clipped(text, 128) }),
        }
    }
}

// === impl ZoneState ===

impl ZoneState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "Initial",
            Self::Normal => "Normal",
            Self::PartialDisruption => "PartialDisruption",
            Self::FullDisruption => "FullDisruption",
        }
    }
}

impl fmt::Display for ZoneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl ZoneRecord ===

impl ZoneRecord {
    /// Whether the zone has no node any more. The record stays until its bucket is full: a zone that comes back at
    /// once must not find a token that it has just spent (I-04).
    pub fn is_retired(&self) -> bool {
        self.zone.state == ZoneState::Initial
    }

    /// Whether nothing would be lost by forgetting the record.
    pub(crate) fn is_spent(&self, now: ClusterTime) -> bool {
        self.zone.rate == Rate::NEVER || self.bucket.has_token(now)
    }

    pub(crate) fn retired(&self, rate: Rate, now: Stamp) -> Self {
        let mut bucket = self.bucket.clone();
        bucket.set_rate(rate, now.cluster);
        Self { zone: Zone { state: ZoneState::Initial, since: now, rate }, bucket, ..self.clone() }
    }
}

impl Versioned for ZoneRecord {}

impl Stored for ZoneRecord {
    type Key = ZoneKey;

    fn key(&self) -> ZoneKey {
        self.key.clone()
    }

    fn record_key(key: &ZoneKey) -> RecordKey {
        RecordKey::Zone { region: key.region.clone(), zone: key.zone.clone() }
    }
}
