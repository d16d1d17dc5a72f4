//! The children of one supervisor: which are there, which are to be rebuilt, and when.
//!
//! A child over its budget is rebuilt at the slowest pace and never failed upward: a zone that cannot be watched must
//! not take the others along.

use std::collections::BTreeMap;
use std::time::Duration;

use ractor::{ActorId, Message};
use tokio::time::Instant;

use crate::letterbox::{Reader, Wake};
use crate::restart::{LONGEST_PAUSE, Record, Sentence};

#[derive(Debug)]
pub(crate) struct Nursery<K, M, L> {
    children: BTreeMap<K, Child<M, L>>,
}

#[derive(Debug)]
struct Child<M, L> {
    record: Record,
    presence: Presence<M, L>,
}

#[derive(Debug)]
enum Presence<M, L> {
    Here(Reader<M, L>),
    Gone { rebuild_at: Instant },
}

// === impl Nursery ===

impl<K: Ord + Clone, M: Wake + Message, L: Default> Nursery<K, M, L> {
    pub(crate) fn new() -> Self {
        Self { children: BTreeMap::new() }
    }

    /// Whether the child is known, be it there or about to be rebuilt.
    pub(crate) fn knows(&self, key: &K) -> bool {
        self.children.contains_key(key)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&Reader<M, L>> {
        self.children.get(key).and_then(Child::reader)
    }

    /// Those that are there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &Reader<M, L>)> {
        self.children.iter().filter_map(|(key, child)| Some((key, child.reader()?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.children.keys()
    }

    /// The child was born, or rebuilt.
    pub(crate) fn put(&mut self, key: K, reader: Reader<M, L>) {
        let record = self.children.remove(&key).map(|child| child.record).unwrap_or_default();
        self.children.insert(key, Child { record, presence: Presence::Here(reader) });
    }

    /// The child died or could not be born. Says when it is to be rebuilt.
    pub(crate) fn lost(&mut self, key: K, now: Instant) -> Duration {
        let gone = Presence::Gone { rebuild_at: now };
        let child = self.children.entry(key).or_insert(Child { record: Record::default(), presence: gone });
        let pause = match child.record.died(now) {
            Sentence::RestartAfter(pause) => pause,
            Sentence::OverBudget => LONGEST_PAUSE,
        };
        child.presence = Presence::Gone { rebuild_at: now + pause };
        pause
    }

    pub(crate) fn key_of(&self, id: ActorId) -> Option<&K> {
        self.iter().find(|(_, reader)| reader.id() == id).map(|(key, _)| key)
    }

    /// Those whose time to be rebuilt has come.
    pub(crate) fn due(&self, now: Instant) -> Vec<K> {
        let is_due = |child: &Child<M, L>| match child.presence {
            Presence::Gone { rebuild_at } => rebuild_at <= now,
            Presence::Here(_) => false,
        };
        self.children.iter().filter(|(_, child)| is_due(child)).map(|(key, _)| key.clone()).collect()
    }

    /// The child is no longer needed.
    pub(crate) fn retire(&mut self, key: &K) {
        if let Some(Child { presence: Presence::Here(reader), .. }) = self.children.remove(key) {
            reader.actor.stop(None);
        }
    }
}

// === impl Child ===

impl<M, L> Child<M, L> {
    fn reader(&self) -> Option<&Reader<M, L>> {
        match &self.presence {
            Presence::Here(reader) => Some(reader),
            Presence::Gone { .. } => None,
        }
    }
}
