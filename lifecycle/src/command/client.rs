//! Last answers to each writer, so that a retry gets the same answer and happens once.

use serde::{Deserialize, Serialize};

use crate::command::{Outcome, RequestId};
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::rejection::Rejection;

/// How many writers are remembered; the one unused for longest makes room.
pub const CLIENTS_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    pub id: u128,
    pub sequence: u64,
    pub outcome: Outcome,
    /// When it was last used, counted in remembered requests. Unique, so that the order of forgetting is defined.
    pub used: u64,
}

impl ClientRecord {
    /// The answer to a request that is not newer than the last one.
    pub fn answer(&self, request: RequestId) -> Option<Outcome> {
        if request.sequence > self.sequence {
            return None;
        }
        if request.sequence == self.sequence {
            return Some(self.outcome.clone());
        }
        Some(Outcome::Rejected(Rejection::Overtaken { sequence: request.sequence, latest: self.sequence }))
    }
}

impl Versioned for ClientRecord {}

impl Stored for ClientRecord {
    type Key = u128;

    fn key(&self) -> u128 {
        self.id
    }

    fn record_key(id: &u128) -> RecordKey {
        RecordKey::Client { id: *id }
    }
}
