//! The chores of a leader that need no actor of their own for each thing they are about: which there are, and what
//! each finds to do when it looks.
//!
//! What is to be done is read off the state by `lifecycle`; here is only added what the ear knows.

use muster_lifecycle::leader_view::LeaderView;
use muster_lifecycle::node::Node;
use muster_lifecycle::spared::Spared;
use muster_lifecycle::state::State;
use muster_lifecycle::todo::{self, Todo};
use muster_pulse::moment::Moment;

use crate::ground::Ground;
use crate::proposal::OPERATIONS_MAX;
use crate::surroundings::ActorKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chore {
    TaintEviction,
    Placement,
    PodGc,
    Staffing,
    Ipam,
}

/// What a chore remembers between two looks. It is lost with its actor, and costs nothing but time then.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    spared: Spared,
}

/// Nodes that get addresses in one entry.
const ASSIGNED_AT_ONCE: usize = 256;

// === impl Chore ===

impl Chore {
    pub(crate) const ALL: [Self; 5] = [Self::TaintEviction, Self::Placement, Self::PodGc, Self::Staffing, Self::Ipam];

    pub(crate) fn kind(self) -> ActorKind {
        match self {
            Self::TaintEviction => ActorKind::TaintEviction,
            Self::Placement => ActorKind::Placement,
            Self::PodGc => ActorKind::PodGc,
            Self::Staffing => ActorKind::Staffing,
            Self::Ipam => ActorKind::Ipam,
        }
    }

    /// It makes up for evictions, and waits for their end.
    pub(crate) fn gives_way(self) -> bool {
        matches!(self, Self::Placement | Self::Staffing)
    }

    pub(crate) fn look(self, state: &State, moment: Moment, ground: &Ground, memory: &mut Memory) -> Todo {
        let now = moment.stamp.cluster;
        let tables = ground.surroundings.pulses.tables();
        let heard = |node: &Node| tables.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at));
        let sight = || LeaderView { now, is_blind: ground.is_blind(state.policy(), moment), heard: &heard };
        match self {
            Self::TaintEviction => sight().evictions(state, &mut memory.spared, OPERATIONS_MAX),
            Self::Placement => sight().placements(state, OPERATIONS_MAX),
            Self::PodGc => todo::pod_garbage(state, now, OPERATIONS_MAX - 1).and(todo::expired_credentials(state, now)),
            Self::Staffing => todo::staffing(state, OPERATIONS_MAX),
            Self::Ipam => todo::cidr_assignments(state, now, ASSIGNED_AT_ONCE),
        }
    }
}
