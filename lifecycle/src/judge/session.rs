//! An agent's session: whether its node is known, whether it must report, and whether a report says anything new.

use std::sync::Arc;

use crate::judge::health::{NEVER_UPDATED, STATUS_UNKNOWN};
use crate::object::node::{Condition, ConditionStatus, Incarnation, Node, NodeStatus};
use crate::state::State;
use crate::value::meta::Uid;

/// What a replica knows of a node whose agent attaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognition {
    Known(Arc<Node>),
    /// The agent must register.
    Unknown(MissingNode),
    /// The replica may lag behind: it must catch up before it says so.
    Doubtful(MissingNode),
}

/// Why the node that an agent speaks for is not in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingNode {
    NotKnown,
    Deleted,
    /// A node of the same name was created since.
    Replaced,
}

/// `welcomed` is the incarnation as which the agent was last welcomed, if it was.
pub fn recognise(state: &State, name: &str, welcomed: Option<Incarnation>) -> Recognition {
    match (state.node(name), welcomed) {
        (Some(node), None) => Recognition::Known(Arc::clone(node)),
        (Some(node), Some(welcomed)) if node.incarnation == welcomed => Recognition::Known(Arc::clone(node)),
        (Some(node), Some(welcomed)) if node.incarnation > welcomed => Recognition::Unknown(MissingNode::Replaced),
        (Some(_), Some(_)) => Recognition::Doubtful(MissingNode::Replaced),
        (None, None) => Recognition::Doubtful(MissingNode::NotKnown),
        (None, Some(_)) => Recognition::Doubtful(MissingNode::Deleted),
    }
}

/// Whether the node must report: its status in the state is not its own word, because it never said anything or the
/// leader marked it as Unknown.
pub fn status_wanted(node: &Node) -> bool {
    node.status.ready().is_none_or(|ready| {
        let ours = ready.reason == NEVER_UPDATED || ready.reason == STATUS_UNKNOWN;
        ready.status == ConditionStatus::Unknown && ours
    })
}

/// Whether a change of the Ready condition makes the node report anew: it is no longer the node's own word.
pub fn needs_status_report(before: &Node, after: &Node) -> bool {
    let ready = |node: &Node| node.status.ready().map(|ready| ready.status);
    ready(before) != ready(after) && status_wanted(after)
}

/// Whether writing the report would change nothing (S-1): times are the cluster's own, and conditions that the report
/// does not mention stay as they are.
pub fn changes_nothing(known: &NodeStatus, report: &NodeStatus) -> bool {
    let same = |condition: &Condition| {
        known.condition(&condition.kind).is_some_and(|known| {
            (known.status, &known.reason, &known.message) == (condition.status, &condition.reason, &condition.message)
        })
    };
    let NodeStatus { capacity, allocatable, conditions, addresses, info } = report;
    (capacity, allocatable, addresses, info) == (&known.capacity, &known.allocatable, &known.addresses, &known.info)
        && conditions.iter().all(same)
}

/// Whether an agent that says it runs just these pods frees names of pods of the node's former lives (GC-3).
pub fn frees_names(state: &State, node: &Node, running: Option<&[Uid]>) -> bool {
    let Some(running) = running else { return false };
    let tenants = state.tenants(&node.meta.name).into_iter().flat_map(|tenants| tenants.keys());
    let mut pods = tenants.filter_map(|key| state.pods().get(key));
    pods.any(|pod| {
        let is_former = !pod.is_bound_to(&node.meta.name, node.incarnation);
        is_former && pod.is_terminating() && !running.contains(&pod.meta.uid)
    })
}

// === impl Recognition ===

impl Recognition {
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Known(_) | Self::Unknown(_) => true,
            Self::Doubtful(_) => false,
        }
    }

    /// After catching up, a doubtful answer is certain.
    pub fn after_catching_up(self) -> Self {
        match self {
            Self::Doubtful(absence) => Self::Unknown(absence),
            certain @ (Self::Known(_) | Self::Unknown(_)) => certain,
        }
    }
}

// === impl MissingNode ===

impl MissingNode {
    pub fn shown(self, node: &str) -> String {
        match self {
            Self::NotKnown => format!("node {node:?} is not known"),
            Self::Deleted => format!("node {node:?} was deleted"),
            Self::Replaced => format!("node {node:?} was deleted and created anew"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::{Batch, Command, OperatorOperation, Origin, Position};
    use crate::object::node::{Address, NodeDraft};
    use crate::value::time::{ClusterTime, Stamp, WallTime};

    use super::*;

    #[test]
    fn an_attaching_node_is_known_unknown_or_doubtful() {
        let state = state_with_node();
        let node = Arc::clone(state.node("a").unwrap());
        let Incarnation(present) = node.incarnation;
        let known = Recognition::Known(node);
        let table = [
            ("a", None, known.clone()),
            ("a", Some(present), known),
            ("a", Some(present - 1), Recognition::Unknown(MissingNode::Replaced)),
            ("a", Some(present + 1), Recognition::Doubtful(MissingNode::Replaced)),
            ("b", None, Recognition::Doubtful(MissingNode::NotKnown)),
            ("b", Some(present), Recognition::Doubtful(MissingNode::Deleted)),
        ];
        for (name, welcomed, expected) in table {
            let found = recognise(&state, name, welcomed.map(Incarnation));
            assert_eq!(found, expected, "{name} welcomed as {welcomed:?}");
            assert!(found.after_catching_up().is_certain());
        }
    }

    #[test]
    fn a_status_is_wanted_unless_the_node_itself_reported_last() {
        let created = Node::clone(state_with_node().node("a").unwrap());
        let mut node = Node { status: NodeStatus::default(), ..created };
        assert!(status_wanted(&node), "it never said anything");
        let table = [
            (ConditionStatus::True, "KubeletReady", false),
            (ConditionStatus::False, "KubeletNotReady", false),
            (ConditionStatus::Unknown, "MyOwnReason", false),
            (ConditionStatus::Unknown, NEVER_UPDATED, true),
            (ConditionStatus::Unknown, STATUS_UNKNOWN, true),
        ];
        let believed = with_ready(&node, ConditionStatus::True, "KubeletReady");
        for (status, reason, wanted) in table {
            node = with_ready(&node, status, reason);
            assert_eq!(status_wanted(&node), wanted, "{status:?} {reason}");
            assert_eq!(needs_status_report(&believed, &node), wanted, "{status:?} {reason}");
            assert!(!needs_status_report(&node, &node), "nothing changed");
        }
    }

    #[test]
    fn s_1_heartbeat_times_alone_are_not_a_change() {
        let known = status(&[("Ready", ConditionStatus::True, 1), ("NetworkUnavailable", ConditionStatus::False, 1)]);
        assert!(changes_nothing(&known, &status(&[("Ready", ConditionStatus::True, 99)])));
        assert!(!changes_nothing(&known, &status(&[("Ready", ConditionStatus::False, 1)])));
        assert!(!changes_nothing(&known, &status(&[("DiskPressure", ConditionStatus::False, 1)])));
    }

    #[test]
    fn any_other_difference_is_a_change() {
        let known = status(&[("Ready", ConditionStatus::True, 1)]);
        let mut reworded = known.clone();
        reworded.conditions[0].message = "now with a swap file".into();
        assert!(!changes_nothing(&known, &reworded));
        let address = Address { kind: "InternalIP".into(), address: "10.0.0.1".into() };
        assert!(!changes_nothing(&known, &NodeStatus { addresses: [address].into(), ..known.clone() }));
        assert!(!changes_nothing(&known, &NodeStatus { info: Some(Box::default()), ..known.clone() }));
    }

    fn state_with_node() -> State {
        let mut state = State::new();
        let draft = NodeDraft { name: "a".into(), ..NodeDraft::default() };
        let operation = OperatorOperation::CreateNode { draft: Box::new(draft), uid: Uid(1) };
        let command =
            Command { origin: Origin::Operator { user: "ada".into() }, request: None, operation: operation.into() };
        state.apply(Position { term: 1, index: 1 }, &Batch { stamp: Stamp::default(), commands: vec![command] });
        state
    }

    fn with_ready(node: &Node, ready: ConditionStatus, reason: &str) -> Node {
        let mut status = status(&[("Ready", ready, 1)]);
        status.conditions[0].reason = reason.into();
        Node { status, ..node.clone() }
    }

    fn status(conditions: &[(&str, ConditionStatus, u64)]) -> NodeStatus {
        let condition = |(kind, status, at): &(&str, ConditionStatus, u64)| Condition {
            kind: (*kind).into(),
            status: *status,
            last_heartbeat: Some(Stamp { cluster: ClusterTime(*at), wall: WallTime(0) }),
            last_transition: None,
            reason: "R".into(),
            message: "m".into(),
        };
        NodeStatus { conditions: conditions.iter().map(condition).collect(), ..NodeStatus::default() }
    }
}
