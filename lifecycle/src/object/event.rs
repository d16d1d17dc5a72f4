//! Events: the bounded log of what happened, in Kubernetes' terms.

use serde::{Deserialize, Serialize};

use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::meta::{ObjectMeta, Uid};
use crate::value::text::{Interner, Text};
use crate::value::time::Stamp;

/// How many events are kept; the oldest make room.
pub const EVENTS_MAX: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    Normal,
    Warning,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    pub kind: Text,
    pub name: Text,
    pub namespace: Option<Text>,
    pub uid: Uid,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Name `<subject>.<sequence in hex>`, namespace `default`.
    pub meta: ObjectMeta,
    pub sequence: u64,
    pub subject: Subject,
    pub event_type: EventType,
    pub reason: Text,
    pub message: Text,
    pub source: Text,
    pub at: Stamp,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Event {
    pub(crate) fn share_texts(&mut self, interner: &mut Interner) {
        let recurring = [&mut self.subject.kind, &mut self.reason, &mut self.source];
        recurring.into_iter().chain(&mut self.meta.namespace).for_each(|text| interner.share(text));
    }
}

impl Versioned for Event {}

impl Stored for Event {
    type Key = u64;

    fn key(&self) -> u64 {
        self.sequence
    }

    fn record_key(key: &u64) -> RecordKey {
        RecordKey::Event { sequence: *key }
    }
}
