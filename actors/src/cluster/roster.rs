//! Rosters: which nodes are to be watched in which zone and shard, read from the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_lifecycle::node::{Node, Slot};
use muster_lifecycle::state::State;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::table::CHUNK_SLOTS;

/// Neighbouring slots, as the pulse tables hold them. A shard watches a zone's nodes in one chunk, so it never has more
/// than [`CHUNK_SLOTS`], and a slot alone says where its node is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkNumber(u32);

/// The nodes of one shard.
pub(crate) type ShardRoster = Vec<Arc<Node>>;

/// The nodes of one zone.
pub(crate) type ZoneRoster = BTreeMap<ChunkNumber, ShardRoster>;

/// Nodes to be watched.
pub(crate) trait Roster: Default {
    fn join(&mut self, more: Self);
}

impl<T> Roster for Vec<T> {
    fn join(&mut self, more: Self) {
        self.extend(more);
    }
}

impl Roster for ZoneRoster {
    fn join(&mut self, more: Self) {
        more.into_iter().for_each(|(chunk, nodes)| self.entry(chunk).or_default().join(nodes));
    }
}

impl ChunkNumber {
    pub(crate) fn of(slot: Slot) -> Self {
        Self(slot.index / CHUNK_SLOTS as u32)
    }
}

impl std::fmt::Display for ChunkNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Adds a node of the zone to the chunk in which it is to be watched.
pub(crate) fn enlist(zone: &mut ZoneRoster, node: &Arc<Node>) {
    zone.entry(ChunkNumber::of(node.slot)).or_default().push(Arc::clone(node));
}

pub(crate) fn of_zone(state: &State, zone: &ZoneKey) -> ZoneRoster {
    let mut chunks = ZoneRoster::new();
    state.nodes().iter().filter(|node| zone_of(node) == *zone).for_each(|node| enlist(&mut chunks, node));
    chunks
}

pub(crate) fn of_shard(state: &State, zone: &ZoneKey, chunk: ChunkNumber) -> ShardRoster {
    let nodes = state.nodes().iter().filter(|node| ChunkNumber::of(node.slot) == chunk);
    nodes.filter(|node| zone_of(node) == *zone).cloned().collect()
}

pub(crate) fn zone_of(node: &Node) -> ZoneKey {
    ZoneKey::from_labels(&node.meta.labels)
}
