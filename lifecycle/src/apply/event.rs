//! Events: what operators can read of what happened, written in the entry that did it.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::apply::Application;
use crate::object::event::{EVENTS_MAX, Event, Happening, NodeHappening, Subject};
use crate::object::node::Node;
use crate::store::change::Object;
use crate::value::meta::{ObjectMeta, Pairs, Uid};
use crate::value::name;
use crate::value::text::{Text, fixed};

const NODE: &str = "Node";

/// The namespace of events about objects that have none.
const EVENT_NAMESPACE: &str = "default";

impl Application<'_> {
    /// Writes an event about a node.
    pub(crate) fn note(&mut self, node: &Node, happening: NodeHappening) {
        self.record_event(node_subject(node), happening);
    }

    /// Writes an event about a node, which need not exist yet.
    pub(crate) fn tell(&mut self, node: &Text, happening: NodeHappening) {
        self.record_event(self.subject_of(node), happening);
    }

    fn subject_of(&self, node: &Text) -> Subject {
        self.state.nodes.get(node).map_or_else(|| subject("Node", node), |known| node_subject(known))
    }

    /// Writes an event. The oldest one makes room, unseen by watchers.
    pub(crate) fn record_event(&mut self, subject: Subject, happening: impl Into<Happening>) {
        self.state.counters.events += 1;
        let mut event = self.event(self.state.counters.events, subject, happening.into());
        event.share_texts(&mut self.state.derived.interner);
        let event = Arc::new(event);
        self.state.events.insert(event.clone());
        self.touch::<Event>(&event.sequence);
        self.publish(None, Some(Object::Event(event)));
        while self.state.events.len() > EVENTS_MAX
            && let Some(oldest) = self.state.events.first().map(|event| event.sequence)
        {
            self.state.events.remove(&oldest);
            self.touch::<Event>(&oldest);
        }
    }

    fn event(&self, sequence: u64, subject: Subject, happening: Happening) -> Event {
        // A subject that is no object of its own may have a name that no object could have.
        let is_object = subject.kind == NODE || subject.namespace.is_some();
        let stem = if is_object { subject.name.to_string() } else { subject.kind.to_lowercase() };
        Event {
            meta: ObjectMeta {
                name: event_name(&stem, sequence),
                namespace: Some(subject.namespace.clone().unwrap_or(fixed!(EVENT_NAMESPACE))),
                uid: event_uid(sequence, subject.uid),
                revision: self.next_revision(),
                generation: 1,
                created: self.now,
                deleted: None,
                labels: Pairs::default(),
                annotations: Pairs::default(),
                owners: Box::default(),
                finalizers: Box::default(),
            },
            sequence,
            subject,
            happening,
            at: self.now,
        }
    }
}

pub(crate) fn node_subject(node: &Node) -> Subject {
    Subject { kind: fixed!(NODE), name: node.meta.name.clone(), namespace: None, uid: node.meta.uid }
}

/// The subject of an event about something that is no object of its own.
pub(crate) fn subject(kind: &str, name: &str) -> Subject {
    Subject { kind: Text::from(kind), name: Text::from(name), namespace: None, uid: Uid::default() }
}

/// The name as upstream writes it. The number makes it unique, so the stem is cut where the whole would be too long.
fn event_name(stem: &str, sequence: u64) -> Text {
    let number = format!(".{sequence:x}");
    let (stem, _) = stem.split_at(stem.floor_char_boundary(name::SUBDOMAIN_MAX - number.len()));
    Text::from(format!("{}{number}", stem.trim_end_matches(['.', '-'])))
}

/// Events are made inside `apply`, where nothing is random: their uid is a hash, in the shape of a version 8 UUID.
fn event_uid(sequence: u64, subject: Uid) -> Uid {
    let mut bytes = subject.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&sequence.to_be_bytes());
    let version_and_variant_cleared = !(0xf000_u128 << 64 | 0xc000_u128 << 48);
    Uid(xxh3_128(&bytes) & version_and_variant_cleared | 0x8000_u128 << 64 | 0x8000_u128 << 48)
}
