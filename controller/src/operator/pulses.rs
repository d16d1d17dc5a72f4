//! Last beats of the whole fleet at once: what a lease says of one node, in a few megabytes for a million.

use std::sync::Arc;

use muster_lifecycle::node::Node;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;

use crate::hearing::Hearing;

/// Nodes in one message: with the longest of names it still fits.
const NODES_PER_PART: usize = 2_048;

#[derive(Clone)]
pub struct Pulses {
    replica: Replica,
    hearing: Hearing,
}

/// One moment's answers.
struct Roll {
    tables: Arc<PulseTables>,
    now: Tick,
    first_hand: bool,
}

// === impl Pulses ===

impl Pulses {
    pub fn new(replica: Replica, hearing: Hearing) -> Self {
        Self { replica, hearing }
    }

    /// At least one part, and all of one moment.
    pub fn parts(&self, first_hand: bool) -> impl Iterator<Item = v1::PulsesPart> + Send + use<> {
        let nodes: Vec<Arc<Node>> = self.replica.current().state.nodes().iter().cloned().collect();
        let (replica, leads) = (self.replica.id(), self.replica.leader() == Some(self.replica.id()));
        let roll = Roll { tables: self.hearing.pulses().tables(), now: self.hearing.tick(), first_hand };
        let count = nodes.len().div_ceil(NODES_PER_PART).max(1);
        (0..count).map(move |part| {
            let rest = &nodes[part * NODES_PER_PART..];
            let pulses = rest.iter().take(NODES_PER_PART).map(|node| roll.call(node)).collect();
            v1::PulsesPart { replica: replica.0, leads, pulses }
        })
    }
}

// === impl Roll ===

impl Roll {
    fn call(&self, node: &Node) -> v1::LastHeard {
        let heard = self.heard(node);
        let age = |heard| u64::try_from(self.now.elapsed_since(heard).as_millis()).unwrap_or(u64::MAX);
        v1::LastHeard {
            node: node.meta.name.to_string(),
            age_ms: heard.map(|(heard, _)| age(heard)),
            through: heard.map_or(0, |(_, through)| through.0),
        }
    }

    fn heard(&self, node: &Node) -> Option<(Tick, ReplicaId)> {
        if self.first_hand {
            return self.tables.own().heard(node.slot).map(|heard| (heard, self.tables.me()));
        }
        self.tables.last_heard(node.slot)
    }
}
