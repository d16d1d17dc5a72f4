//! All streams of this replica and the nodes bound to them, found by slot.
//!
//! A node that exists has one slot, so the slot stands for its name. The maps are split so that a storm of attaching
//! agents does not queue at one lock; how many entries there can be is bounded by the door's connections and by the
//! handles of aggregators.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::node::Slot;

use crate::session::wake::entry::{Bell, Entry};

pub(crate) const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry {
    nodes: Sharded<u32, Arc<Entry>>,
    streams: Sharded<u64, Arc<Bell>>,
    next_stream: AtomicU64,
}

/// An open stream, known until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    registry: Arc<Registry>,
    id: u64,
    pub(crate) bell: Arc<Bell>,
}

#[derive(Debug)]
struct Sharded<K, V>(Box<[Mutex<HashMap<K, V>>]>);

// === impl Registry ===

impl Registry {
    pub(crate) fn open(self: &Arc<Self>) -> Stream {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let bell = Arc::<Bell>::default();
        self.streams.shard(id).insert(id, Arc::clone(&bell));
        Stream { registry: Arc::clone(self), id, bell }
    }

    /// Makes `entry` the session of its node here, and hands back the one that was.
    pub(crate) fn enter(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.nodes.shard(entry.slot.index.into()).insert(entry.slot.index, entry)
    }

    /// True if it was the session of its node here until now.
    pub(crate) fn leave(&self, entry: &Arc<Entry>) -> bool {
        let mut nodes = self.nodes.shard(entry.slot.index.into());
        let current = nodes.get(&entry.slot.index).is_some_and(|known| Arc::ptr_eq(known, entry));
        if current {
            nodes.remove(&entry.slot.index);
        }
        current
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<Arc<Entry>> {
        let nodes = self.nodes.shard(slot.index.into());
        nodes.get(&slot.index).filter(|entry| entry.slot == slot).cloned()
    }

    pub(crate) fn is_current(&self, entry: &Arc<Entry>) -> bool {
        self.get(entry.slot).is_some_and(|known| Arc::ptr_eq(&known, entry))
    }

    /// One of [`SHARDS`] parts of all nodes, as of now.
    pub(crate) fn nodes_of_shard(&self, shard: usize) -> Vec<Arc<Entry>> {
        self.nodes.values(shard)
    }

    /// One of [`SHARDS`] parts of all streams, as of now.
    pub(crate) fn streams_of_shard(&self, shard: usize) -> Vec<Arc<Bell>> {
        self.streams.values(shard)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self { nodes: Sharded::new(), streams: Sharded::new(), next_stream: AtomicU64::new(0) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.registry.streams.shard(self.id).remove(&self.id);
    }
}

// === impl Sharded ===

impl<K: Eq + Hash, V: Clone> Sharded<K, V> {
    fn new() -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(SHARDS).collect())
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<K, V>> {
        self.of((number % SHARDS as u64) as usize)
    }

    fn values(&self, shard: usize) -> Vec<V> {
        self.of(shard).values().cloned().collect()
    }

    fn of(&self, shard: usize) -> MutexGuard<'_, HashMap<K, V>> {
        self.0[shard % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::wake::entry::{SOLE, Signal};

    fn entry(slot: u32, instance: u64) -> Arc<Entry> {
        let slot = Slot { index: slot, generation: 1 };
        let remote = ([127, 0, 0, 1], 1).into();
        Arc::new(Entry::new(("n".into(), slot), (instance, remote), 1, (Arc::default(), SOLE)))
    }

    #[test]
    fn who_was_replaced_does_not_take_its_successor_along() {
        let registry = Registry::default();
        let (first, second) = (entry(7, 1), entry(7, 1));
        assert!(registry.enter(Arc::clone(&first)).is_none());
        let replaced = registry.enter(Arc::clone(&second)).unwrap();
        assert!(Arc::ptr_eq(&replaced, &first));
        assert!(!registry.leave(&first));
        assert!(registry.is_current(&second));
        assert!(registry.leave(&second));
        assert!(registry.get(second.slot).is_none());
    }

    #[test]
    fn a_slot_is_found_under_its_own_generation_only() {
        let registry = Registry::default();
        registry.enter(entry(3, 1));
        assert!(registry.get(Slot { index: 3, generation: 2 }).is_none());
        assert!(registry.get(Slot { index: 3, generation: 1 }).is_some());
    }

    #[test]
    fn a_stream_is_known_until_it_is_dropped() {
        let registry = Arc::new(Registry::default());
        let stream = registry.open();
        let known: Vec<_> = (0..SHARDS).flat_map(|shard| registry.streams_of_shard(shard)).collect();
        known[0].ring(Signal::Move);
        assert!(stream.bell.signals().has(Signal::Move));
        assert!(!stream.bell.signals().has(Signal::Move), "taken");
        drop(stream);
        assert!((0..SHARDS).all(|shard| registry.streams_of_shard(shard).is_empty()));
    }
}
