//! Last heartbeats of nodes, as people and `kubectl` read them.
//!
//! Beats are not stored, so the last heartbeat in the state is as old as the last change. The pulse tables hold the
//! newer ones.

use std::sync::Arc;

use muster_lifecycle::node::Node;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_pulse::by_replica::PulseTables;
use muster_pulse::tick::Tick;
use muster_raft::feed::Feed;

use crate::hearing::Hearing;

/// One moment's view of when each node was heard: taken once for a list of any length.
pub struct Heartbeats {
    tables: Arc<PulseTables>,
    tick: Tick,
    now: Stamp,
}

/// When `node` was last heard; see [`Heartbeats::of`].
pub fn rendered(node: &Node, hearing: &Hearing, feed: &Feed) -> Option<Stamp> {
    Heartbeats::now(hearing, feed).of(node)
}

// === impl Heartbeats ===

impl Heartbeats {
    pub fn now(hearing: &Hearing, feed: &Feed) -> Self {
        Self { tables: hearing.pulses().tables(), tick: hearing.tick(), now: feed.stamp() }
    }

    /// The newer of the stored heartbeat and the one heard. `None` if the node vouches for none of its conditions: an
    /// Unknown condition keeps the heartbeat that it had when it became Unknown.
    pub fn of(&self, node: &Node) -> Option<Stamp> {
        let mut vouched = node.status.conditions.iter().filter(|condition| condition.is_vouched_for()).peekable();
        vouched.peek()?;
        let stored = vouched.filter_map(|condition| condition.last_heartbeat);
        stored.chain(self.heard(node)).max_by_key(|stamp| stamp.cluster)
    }

    fn heard(&self, node: &Node) -> Option<Stamp> {
        let (heard, _) = self.tables.last_heard(node.slot)?;
        let age = u64::try_from(self.tick.elapsed_since(heard).as_millis()).unwrap_or(u64::MAX);
        let wall = self.now.wall.0.saturating_sub_unsigned(age);
        Some(Stamp { cluster: ClusterTime(self.now.cluster.0.saturating_sub(age)), wall: WallTime(wall) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_lifecycle::command::{AgentOperation, Batch, Command, Origin, Position};
    use muster_lifecycle::meta::Uid;
    use muster_lifecycle::node::{Condition, ConditionStatus, NodeDraft, NodeStatus, Slot};
    use muster_lifecycle::replica::ReplicaId;
    use muster_lifecycle::state::State;

    use super::*;

    #[test]
    fn a_heartbeat_is_the_newest_of_stored_and_heard() {
        let node = node(ConditionStatus::True);
        let (tables, now) =
            (PulseTables::new(ReplicaId(1)), Stamp { cluster: ClusterTime(60_000), wall: WallTime(1_060_000) });
        let tick = Tick::since_boot(Duration::from_secs(50));
        let heard_at = |tables: &PulseTables| {
            let view = Heartbeats { tables: Arc::new(tables.clone()), tick, now };
            view.of(&node).map(|stamp| (stamp.cluster.0, stamp.wall.0))
        };
        assert_eq!(heard_at(&tables), Some((10_000, 0)), "as stored");
        let _ = tables.own().beat(node.slot, Tick::since_boot(Duration::from_secs(48)));
        assert_eq!(heard_at(&tables), Some((58_000, 1_058_000)));
        let stranger = Slot { generation: node.slot.generation + 1, ..node.slot };
        let _ = tables.own().beat(stranger, tick);
        assert_eq!(heard_at(&tables), Some((10_000, 0)), "its successor's beats are not its own");
    }

    #[test]
    fn a_beat_does_not_date_an_unknown_condition() {
        let node = node(ConditionStatus::Unknown);
        let tables = PulseTables::new(ReplicaId(1));
        let tick = Tick::since_boot(Duration::from_secs(50));
        let _ = tables.own().beat(node.slot, tick);
        let view = Heartbeats { tables: Arc::new(tables), tick, now: Stamp::default() };
        assert_eq!(view.of(&node), None);
    }

    /// A custom condition belongs to another component, which may report long after the agent fell silent.
    #[test]
    fn a_custom_condition_does_not_date_the_nodes_heartbeat() {
        let node = node_with([condition("Ready", ConditionStatus::Unknown), condition("Raid", ConditionStatus::True)]);
        let (tables, tick) = (Arc::new(PulseTables::new(ReplicaId(1))), Tick::since_boot(Duration::from_secs(50)));
        assert_eq!(Heartbeats { tables, tick, now: Stamp::default() }.of(&node), None);
    }

    fn node(status: ConditionStatus) -> Arc<Node> {
        node_with([condition("Ready", status)])
    }

    fn condition(kind: &str, status: ConditionStatus) -> Condition {
        let (reason, message) = ("R".into(), "m".into());
        Condition { kind: kind.into(), status, last_heartbeat: None, last_transition: None, reason, message }
    }

    fn node_with<const N: usize>(conditions: [Condition; N]) -> Arc<Node> {
        let status = NodeStatus { conditions: conditions.into(), ..NodeStatus::default() };
        let draft = NodeDraft { name: "n1".into(), status: Some(status), ..NodeDraft::default() };
        let operation = AgentOperation::RegisterNode { draft: Box::new(draft), uid: Uid(1), running: None };
        let command =
            Command { origin: Origin::Node { name: "n1".into() }, request: None, operation: operation.into() };
        let stamp = Stamp { cluster: ClusterTime(10_000), wall: WallTime(0) };
        let mut state = State::new();
        state.apply(Position { term: 1, index: 1 }, &Batch { stamp, commands: vec![command] });
        Arc::clone(state.node("n1").unwrap())
    }
}
