//! The registry of this replica's streams and of the nodes bound to them, found by slot.
//!
//! A node that exists has one slot, so the slot stands for its name. The maps are split so that a storm of attaching
//! agents does not queue at one lock. The door's connections and the aggregators' handles bound the number of entries.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use tokio::time::sleep;

use crate::session::wake::entry::{Entry, Signal, Wakeup};

pub(crate) const SHARDS: usize = 64;

/// Streams that are signalled at once, and the pause before the next: together some 5,000 a second, so that the agents'
/// reactions are spread out as well.
const AT_ONCE: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Registry {
    nodes: Sharded<u32, Arc<Entry>>,
    streams: Sharded<u64, Arc<Wakeup>>,
    next_stream: AtomicU64,
    is_closed: AtomicBool,
}

/// An open stream, known until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    registry: Arc<Registry>,
    id: u64,
    pub(crate) wakeup: Arc<Wakeup>,
}

#[derive(Debug)]
struct Sharded<K, V>(Box<[Mutex<HashMap<K, V>>]>);

// === impl Registry ===

impl Registry {
    pub(crate) fn open(self: &Arc<Self>) -> Stream {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let wakeup = Arc::<Wakeup>::default();
        self.streams.shard(id).insert(id, Arc::clone(&wakeup));
        Stream { registry: Arc::clone(self), id, wakeup }
    }

    /// Tells every stream to end, including those that open later.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.signal_all(Signal::Stop);
    }

    /// Signals every stream at once.
    pub(crate) fn signal_all(&self, signal: Signal) {
        (0..SHARDS).flat_map(|shard| self.streams.values(shard)).for_each(|wakeup| wakeup.signal(signal));
    }

    /// Signals every stream, a few at a time.
    pub(crate) async fn signal_gradually(&self, signal: Signal) {
        let mut signalled = 0;
        for shard in 0..SHARDS {
            for wakeup in self.streams.values(shard) {
                wakeup.signal(signal);
                signalled += 1;
                if signalled % AT_ONCE == 0 {
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Makes every stream examine its nodes.
    pub(crate) fn touch_all(&self) {
        (0..SHARDS).for_each(|shard| self.nodes_of_shard(shard).iter().for_each(|entry| entry.touch()));
    }

    /// Makes `entry` the session of its node here, and returns the former one.
    pub(crate) fn enter(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.nodes.shard(entry.slot.index.into()).insert(entry.slot.index, entry)
    }

    /// True if `entry` was the session of its node here until now.
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

    /// The sessions in one of [`SHARDS`] parts, as of now.
    pub(crate) fn nodes_of_shard(&self, shard: usize) -> Vec<Arc<Entry>> {
        self.nodes.values(shard)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            nodes: Sharded::new(),
            streams: Sharded::new(),
            next_stream: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Whether this replica stops. A stream that does not see the flag, because it was opened before, is signalled.
    pub(crate) fn is_closed(&self) -> bool {
        self.registry.is_closed.load(Ordering::SeqCst)
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
    use crate::session::wake::entry::SOLE;

    fn entry(slot: u32, instance: u64) -> Arc<Entry> {
        let slot = Slot { index: slot, generation: 1 };
        let remote = ([127, 0, 0, 1], 1).into();
        Arc::new(Entry::new(("n".into(), slot), (instance, remote), 1, (Arc::default(), SOLE)))
    }

    #[test]
    fn the_end_of_a_replaced_session_leaves_its_successor_registered() {
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
        registry.signal_all(Signal::Relocate);
        assert!(stream.wakeup.signals().has(Signal::Relocate));
        assert!(!stream.wakeup.signals().has(Signal::Relocate), "taken");
        drop(stream);
        assert!((0..SHARDS).all(|shard| registry.streams.values(shard).is_empty()));
    }

    #[test]
    fn a_stream_opened_before_or_after_the_close_is_stopped() {
        let registry = Arc::new(Registry::default());
        let before = registry.open();
        assert!(!before.is_closed());
        registry.close();
        assert!(before.wakeup.signals().has(Signal::Stop));
        assert!(registry.open().is_closed(), "it opened too late for the signal");
    }
}
