//! The children of one supervisor: which ones run, which ones are to be rebuilt, and when.
//!
//! A child over its budget is rebuilt at the slowest pace and its failure never spreads upward: a zone that cannot be
//! watched must not take the others along.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, Message};
use tokio::time::Instant;

use crate::ports::ActorKind;
use crate::supervision::letterbox::{Letterbox, Reader, Wake};
use crate::supervision::restart::{DeathRecord, LONGEST_PAUSE, RestartDecision};

#[derive(Debug)]
pub(crate) struct Children<K, M, L> {
    children: BTreeMap<K, Child<M, L>>,
}

#[derive(Debug)]
struct Child<M, L> {
    deaths: DeathRecord,
    state: ChildState<M, L>,
}

#[derive(Debug)]
enum ChildState<M, L> {
    Here(Reader<M, L>),
    Gone { rebuild_at: Instant },
}

// === impl Children ===

impl<K: Ord + Clone, M: Wake + Message, L: Default> Children<K, M, L> {
    pub(crate) fn new() -> Self {
        Self { children: BTreeMap::new() }
    }

    /// Whether the child is known, running or about to be rebuilt.
    pub(crate) fn knows(&self, key: &K) -> bool {
        self.children.contains_key(key)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&Reader<M, L>> {
        self.children.get(key).and_then(Child::reader)
    }

    /// The children that run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &Reader<M, L>)> {
        self.children.iter().filter_map(|(key, child)| Some((key, child.reader()?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.children.keys()
    }

    /// Starts or rebuilds the child. It is told `first`, and later updates come through its letterbox. A child that
    /// does not start is tried again like one that died.
    pub(crate) async fn spawn<A>(
        &mut self,
        (kind, key): (ActorKind, K),
        actor: A,
        first: L,
        args: impl FnOnce(Arc<Letterbox<L>>) -> A::Arguments,
        supervisor: ActorCell,
    ) where
        A: Actor<Msg = M>,
        K: Display,
    {
        let letterbox = Letterbox::with(first);
        match A::spawn_linked(None, actor, args(Arc::clone(&letterbox)), supervisor).await {
            Ok((actor, _)) => self.put(key, Reader { actor, letterbox }),
            Err(error) => {
                let pause = self.lost(key.clone(), Instant::now());
                tracing::error!(%kind, name = %key, %error, ?pause, "an actor did not start, it is tried again");
            }
        }
    }

    /// Whether the actor was one of these children. If so, it is rebuilt later.
    pub(crate) fn died(&mut self, id: ActorId, kind: impl FnOnce(&K) -> ActorKind, reason: &str) -> bool
    where
        K: Display,
    {
        let Some(key) = self.key_of(id).cloned() else { return false };
        let (kind, pause) = (kind(&key), self.lost(key.clone(), Instant::now()));
        tracing::error!(%kind, name = %key, reason, ?pause, "an actor died, it is rebuilt");
        true
    }

    fn put(&mut self, key: K, reader: Reader<M, L>) {
        let deaths = self.children.remove(&key).map(|child| child.deaths).unwrap_or_default();
        self.children.insert(key, Child { deaths, state: ChildState::Here(reader) });
    }

    /// The child died or could not be started. Returns how long to wait before it is rebuilt.
    fn lost(&mut self, key: K, now: Instant) -> Duration {
        let gone = ChildState::Gone { rebuild_at: now };
        let child = self.children.entry(key).or_insert(Child { deaths: DeathRecord::default(), state: gone });
        let pause = match child.deaths.died(now) {
            RestartDecision::RestartAfter(pause) => pause,
            RestartDecision::OverBudget => LONGEST_PAUSE,
        };
        child.state = ChildState::Gone { rebuild_at: now + pause };
        pause
    }

    fn key_of(&self, id: ActorId) -> Option<&K> {
        self.iter().find(|(_, reader)| reader.id() == id).map(|(key, _)| key)
    }

    /// The children that are due to be rebuilt.
    pub(crate) fn due(&self, now: Instant) -> Vec<K> {
        let is_due = |child: &Child<M, L>| match child.state {
            ChildState::Gone { rebuild_at } => rebuild_at <= now,
            ChildState::Here(_) => false,
        };
        self.children.iter().filter(|(_, child)| is_due(child)).map(|(key, _)| key.clone()).collect()
    }

    /// The child is no longer needed.
    pub(crate) fn retire(&mut self, key: &K) {
        if let Some(Child { state: ChildState::Here(reader), .. }) = self.children.remove(key) {
            reader.actor.stop(None);
        }
    }
}

// === impl Child ===

impl<M, L> Child<M, L> {
    fn reader(&self) -> Option<&Reader<M, L>> {
        match &self.state {
            ChildState::Here(reader) => Some(reader),
            ChildState::Gone { .. } => None,
        }
    }
}
