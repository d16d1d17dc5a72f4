//! Eviction queue of one zone: the nodes that wait for a token, in the order of their turns.

use imbl::{OrdMap, OrdSet};

use crate::object::node::NODES_MAX;
use crate::value::text::Text;
use crate::value::time::ClusterTime;

/// The nodes of one zone that wait for a token: first come, first served, then by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvictionQueue {
    order: OrdSet<(ClusterTime, Text)>,
    queued_at: OrdMap<Text, ClusterTime>,
}

/// The result of putting a node into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    Added,
    /// The node waits already and keeps its place. Upstream sends it to the end on every pass (NE-4).
    Kept,
    /// As many nodes wait as a cluster may have, so the queue holds nodes that are gone.
    Full,
}

// === impl EvictionQueue ===

impl EvictionQueue {
    pub fn enqueue(&mut self, name: Text, now: ClusterTime) -> Enqueued {
        if self.queued_at.len() >= NODES_MAX {
            return if self.contains(&name) { Enqueued::Kept } else { Enqueued::Full };
        }
        // A node is hardly ever put in twice, and a lookup before each insertion would cost as much as the insertion.
        if let Some(since) = self.queued_at.insert(name.clone(), now) {
            self.queued_at.insert(name, since);
            return Enqueued::Kept;
        }
        self.order.insert((now, name));
        Enqueued::Added
    }

    /// False if the node did not wait.
    pub fn remove(&mut self, name: &str) -> bool {
        match self.queued_at.remove_with_key(name) {
            Some((name, since)) => self.order.remove(&(since, name)).is_some(),
            None => false,
        }
    }

    /// The next node, and since when it has waited.
    pub fn head(&self) -> Option<(&Text, ClusterTime)> {
        self.order.get_min().map(|(since, name)| (name, *since))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.queued_at.contains_key(name)
    }

    pub fn queued_at(&self, name: &str) -> Option<ClusterTime> {
        self.queued_at.get(name).copied()
    }

    /// How many nodes are ahead of it. It counts them, so it is for explaining and not for deciding.
    pub fn position(&self, name: &str) -> Option<usize> {
        let since = self.queued_at(name)?;
        Some(self.order.range(..(since, Text::from(name))).count())
    }

    /// The nodes in the order of their turns.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Text, ClusterTime)> + ExactSizeIterator + '_ {
        self.order.iter().map(|(since, name)| (name, *since))
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn clear(&mut self) {
        self.order.clear();
        self.queued_at.clear();
    }
}
