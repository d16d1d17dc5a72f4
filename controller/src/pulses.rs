//! Who was heard when, the whole fleet at once: what a lease says of one node, in a few megabytes for a million.

use std::sync::Arc;

use muster_lifecycle::node::Node;
use muster_proto::v1;
use muster_pulse::fleet::{Fleet, Origin};
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
    fleet: Arc<Fleet>,
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
        let roll = Roll { fleet: self.hearing.ear().fleet(), now: self.hearing.tick(), first_hand };
        let count = nodes.len().div_ceil(NODES_PER_PART).max(1);
        (0..count).map(move |part| {
            let rest = &nodes[part * NODES_PER_PART..];
            let pulses = rest.iter().take(NODES_PER_PART).map(|node| roll.call(node)).collect();
            v1::PulsesPart { replica, leads, pulses }
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

    fn heard(&self, node: &Node) -> Option<(Tick, Origin)> {
        if self.first_hand {
            return self.fleet.own().heard(node.slot).map(|heard| (heard, self.fleet.me()));
        }
        self.fleet.last_heard(node.slot)
    }
}
