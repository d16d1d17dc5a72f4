//! The chores of a leader that need no actor of their own for each thing they are about: which there are, and what
//! each finds to do when it looks.
//!
//! What is to be done is read off the state by `lifecycle`; here is only added what the ear knows.

use muster_lifecycle::chores::{self, Chores};
use muster_lifecycle::condition_taint;
use muster_lifecycle::node::Node;
use muster_lifecycle::policy::{Period, Policy};
use muster_lifecycle::state::State;
use muster_lifecycle::time::ClusterTime;
use muster_pulse::moment::Moment;

use crate::ground::Ground;
use crate::proposal::OPERATIONS_MAX;
use crate::spared::Spared;
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

/// How many beats a node may miss before nothing new is placed on it.
const BEATS_MISSED: u64 = 2;

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

    pub(crate) fn look(self, state: &State, moment: Moment, ground: &Ground, memory: &mut Memory) -> Chores {
        let now = moment.stamp.cluster;
        match self {
            Self::TaintEviction => evict(state, moment, ground, memory),
            Self::Placement => place(state, moment, ground),
            Self::PodGc => chores::pod_garbage(state, now, OPERATIONS_MAX),
            Self::Staffing => chores::staffing(state, OPERATIONS_MAX),
            Self::Ipam => chores::cidr_assignments(state, now, ASSIGNED_AT_ONCE),
        }
    }
}

/// I-03: whoever is blind now may not know who is back. What an operator's taint drives away goes all the same.
fn evict(state: &State, moment: Moment, ground: &Ground, memory: &mut Memory) -> Chores {
    if state.leaving_pods().len() == 0 {
        return Chores::default();
    }
    let now = moment.stamp.cluster;
    let is_blind = ground.is_blind(state.policy(), moment);
    let fleet = ground.surroundings.ear.fleet();
    memory.spared.keep_only(|name| state.absent().contains(name));
    let is_spared = |node: &Node| {
        let heard = fleet.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at));
        is_lost(node) && (is_blind || memory.spared.passes_over(node, heard, state.policy(), now))
    };
    chores::pod_evictions(state, now, OPERATIONS_MAX, is_spared)
}

/// It is the lifecycle that drives its pods away.
fn is_lost(node: &Node) -> bool {
    !condition_taint::present_absences(&node.spec.taints).is_empty()
}

/// Nothing is placed by somebody who cannot hear.
fn place(state: &State, moment: Moment, ground: &Ground) -> Chores {
    let now = moment.stamp.cluster;
    if state.waiting_pods().len() == 0 {
        return Chores::default();
    }
    if ground.is_blind(state.policy(), moment) {
        return Chores { operations: Vec::new(), look_again_at: Some(BLIND_PAUSE.after(now)) };
    }
    let fleet = ground.surroundings.ear.fleet();
    let is_unheard = |node: &Node| {
        let heard = fleet.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at));
        !is_heard_of_late(heard, state.policy(), now)
    };
    chores::placements(state, now, OPERATIONS_MAX, is_unheard)
}

const BLIND_PAUSE: Period = Period(500);

fn is_heard_of_late(heard: Option<ClusterTime>, policy: &Policy, now: ClusterTime) -> bool {
    let patience = Period(policy.beat_interval().0.saturating_mul(BEATS_MISSED));
    heard.is_some_and(|heard| now <= patience.after(heard))
}
