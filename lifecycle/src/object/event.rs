//! Events: the bounded log of what happened, in Kubernetes' terms.
//!
//! Events are state, and replicas of two builds must agree on every byte of it. So an event stores a [`Happening`], a
//! code with its parameters; reason, type, source and message are made of it where the event is read. A text in a
//! parameter is data: a name, a value in its own notation, or what another program said.

mod fleet;
mod headline;
mod node;
mod pod;
mod subject;

use serde::{Deserialize, Serialize};

pub use self::fleet::{FleetHappening, FleetHappeningKind};
pub use self::headline::{EventType, Headline};
pub use self::node::{ConditionTurn, LastHeard, NodeHappening, NodeHappeningKind};
pub use self::pod::{PodHappening, PodHappeningKind};
pub use self::subject::Subject;
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::meta::ObjectMeta;
use crate::value::text::{Interner, Text};
use crate::value::time::Stamp;

/// How many events are kept; the oldest make room.
pub const EVENTS_MAX: usize = 16_384;

/// What happened, by what it happened to. New happenings go last in their group, because their numbers are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Happening {
    Node(NodeHappening),
    Fleet(FleetHappening),
    Pod(PodHappening),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Name `<subject>.<sequence in hex>`, namespace `default`.
    pub meta: ObjectMeta,
    pub sequence: u64,
    pub subject: Subject,
    pub happening: Happening,
    pub at: Stamp,
}

// === impl Event ===

impl Event {
    pub fn headline(&self) -> Headline {
        match &self.happening {
            Happening::Node(happening) => happening.headline(),
            Happening::Fleet(happening) => happening.headline(),
            Happening::Pod(happening) => happening.headline(&self.subject),
        }
    }

    pub fn reason(&self) -> &'static str {
        self.headline().reason
    }

    /// The sentence for people.
    pub fn message(&self) -> String {
        match &self.happening {
            Happening::Node(happening) => happening.message(&self.subject),
            Happening::Fleet(happening) => happening.message(&self.subject),
            Happening::Pod(happening) => happening.message(&self.subject),
        }
    }

    /// The node, if the event says that another key, or no key, speaks for it.
    pub fn rekeyed_node(&self) -> Option<&Text> {
        let is_told =
            matches!(self.happening, Happening::Node(NodeHappening::Enrolled { .. } | NodeHappening::Revoked { .. }));
        is_told.then_some(&self.subject.name)
    }

    pub(crate) fn share_texts(&mut self, interner: &mut Interner) {
        let recurring = std::iter::once(&mut self.subject.kind);
        recurring.chain(&mut self.meta.namespace).for_each(|text| interner.share(text));
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

// === impl Happening ===

impl From<NodeHappening> for Happening {
    fn from(happening: NodeHappening) -> Self {
        Self::Node(happening)
    }
}

impl From<FleetHappening> for Happening {
    fn from(happening: FleetHappening) -> Self {
        Self::Fleet(happening)
    }
}

impl From<PodHappening> for Happening {
    fn from(happening: PodHappening) -> Self {
        Self::Pod(happening)
    }
}
