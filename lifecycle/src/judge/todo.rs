//! Todo lists of a leader about pods, workloads, addresses and expired credentials, read off the state.
//!
//! As with [`oversight`](crate::judge::oversight), the driver asks and proposes, and nothing is remembered here. Each
//! answer is bounded; the driver asks again when it has done what the answer says.

use std::sync::Arc;

use crate::command::LeaderOperation;
use crate::judge::placement::Board;
use crate::judge::staffing::{self, STEP_MAX};
use crate::object::credential::FORGOTTEN_MAX;
use crate::object::kind::WorkloadKind;
use crate::object::node::Node;
use crate::object::pod::{POD_SCHEDULED, Pod};
use crate::object::record::Stored;
use crate::object::workload::Workload;
use crate::rule::garbage::{self, Garbage, ORPHAN_QUARANTINE, TERMINATED_KEPT};
use crate::state::State;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::time::Period;

/// The operations to do now, and when to look again if nothing changes before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Todo {
    pub operations: Vec<LeaderOperation>,
    pub look_again_at: Option<ClusterTime>,
}

impl Todo {
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.operations.extend(other.operations);
        self.look_again_at = self.look_again_at.into_iter().chain(other.look_again_at).min();
        self
    }
}

/// How many pods that cannot be evicted now are passed over in one look, so that it stays short.
const PASSED_OVER_MAX: usize = 65_536;

/// How many pods get the reason why they have no place in one look; the others get it in the next.
const NOTES_MAX: usize = 128;

/// A pod that found no place gets the reason, but not more often than this.
const UNPLACED_PAUSE: Period = Period::from_secs(10);

/// How soon to look again at pods that found no place: they may wait for a node to be heard again, which changes
/// nothing in the state.
const PLACING_PAUSE: Period = Period::from_secs(1);

/// TE-8: pods whose time is over. `is_spared` says on which nodes no pod is evicted at this moment.
pub fn pod_evictions(state: &State, now: ClusterTime, most: usize, mut is_spared: impl FnMut(&Node) -> bool) -> Todo {
    let mut operations = Vec::new();
    let mut spared = false;
    for (at, key) in state.leaving_pods().take(PASSED_OVER_MAX.max(most)) {
        if at > now {
            let again = if spared { PLACING_PAUSE.after(now).min(at) } else { at };
            return Todo { operations, look_again_at: Some(again) };
        }
        if operations.len() >= most {
            break;
        }
        let Some(pod) = state.pods().get(key) else { continue };
        match state.node_of(pod).is_some_and(|node| is_spared(node)) {
            true => spared = true,
            false => operations.push(LeaderOperation::EvictPod { key: key.clone(), uid: pod.meta.uid }),
        }
    }
    Todo { operations, look_again_at: spared.then(|| PLACING_PAUSE.after(now)) }
}

/// GC-1 to GC-4. `blind_until` as in [`LeaderView`](crate::judge::leader_view::LeaderView).
pub fn pod_garbage(state: &State, now: ClusterTime, blind_until: ClusterTime, most: usize) -> Todo {
    let seen_from = ORPHAN_QUARANTINE.after(blind_until);
    let excess = state.finished_pods().len().saturating_sub(TERMINATED_KEPT);
    let surplus = state.finished_pods().take(excess).filter_map(|key| state.pods().get(key));
    let mut is_held = false;
    let mut may_go = |pod: &&Arc<Pod>| {
        let node = pod.node().and_then(|name| state.node(name)).map(AsRef::as_ref);
        let is_orphan = garbage::garbage(pod, node, now) == Some(Garbage::Orphaned);
        let is_unsure = is_orphan && now < seen_from;
        is_held |= is_unsure;
        !is_unsure
    };
    let due = state.collectable_pods().take(PASSED_OVER_MAX.max(most)).take_while(|(from, _)| *from <= now);
    let due = due.filter_map(|(_, key)| state.pods().get(key)).filter(|pod| may_go(pod));
    let collect = |pod: &Arc<Pod>| LeaderOperation::CollectPod { key: pod.key(), uid: pod.meta.uid };
    let operations = surplus.chain(due).take(most).map(collect).collect();
    let next = state.collectable_pods().map(|(from, _)| from).find(|from| *from > now);
    let look_again_at = next.into_iter().chain(is_held.then_some(seen_from)).min();
    Todo { operations, look_again_at }
}

/// Credentials that are no longer needed.
pub fn expired_credentials(state: &State, now: ClusterTime) -> Todo {
    let due = state.expired_credentials().take_while(|(from, _)| *from <= now).take(FORGOTTEN_MAX);
    let names: Vec<Text> = due.map(|(_, name)| name.clone()).collect();
    match names.is_empty() {
        true => Todo { look_again_at: state.expired_credentials().next().map(|(from, _)| from), ..Todo::default() },
        false => Todo { operations: vec![LeaderOperation::ForgetCredentials { names }], look_again_at: None },
    }
}

/// Workloads that lack pods or have too many.
pub fn staffing(state: &State, most: usize) -> Todo {
    let (mut operations, mut steps) = (Vec::new(), 0);
    for workload in state.unsettled_workloads().filter_map(|key| state.workloads().get(key)) {
        // One entry that makes the pods of many large workloads would hold up all other entries.
        if steps >= most {
            break;
        }
        let staffing = staffing::staffing(state, workload, &[]);
        if !staffing.is_settled() {
            steps += 1 + staffing.openings.len() + staffing.dismissals.len();
            operations.push(staff(workload, Vec::new()));
        }
    }
    let daemons = state.workloads().iter().filter(|workload| workload.kind == WorkloadKind::DaemonSet);
    for workload in daemons.filter(|workload| workload.meta.deleted.is_none()) {
        if steps >= most {
            break;
        }
        let nodes = lacking(state, workload);
        if !nodes.is_empty() {
            steps += 1 + nodes.len();
            operations.push(staff(workload, nodes));
        }
    }
    Todo { operations, look_again_at: None }
}

fn lacking(state: &State, workload: &Workload) -> Vec<Text> {
    let lacking = staffing::lacking(state, workload, state.nodes().iter());
    lacking.take(STEP_MAX).map(|node| node.meta.name.clone()).collect()
}

fn staff(workload: &Workload, nodes: Vec<Text>) -> LeaderOperation {
    let key = workload.key();
    LeaderOperation::StaffWorkload { key, uid: workload.meta.uid, nodes }
}

/// Nodes for pods that wait for one, in the order of their turns. `is_unheard` as for [`Board::new`].
pub fn placements(state: &State, now: ClusterTime, most: usize, is_unheard: impl FnMut(&Node) -> bool) -> Todo {
    if state.waiting_pods().len() == 0 {
        return Todo::default();
    }
    let mut board = Board::new(state, is_unheard);
    let (mut bindings, mut notes, mut look_again_at) = (Vec::new(), Vec::new(), None);
    for key in state.waiting_pods() {
        if bindings.len() >= most {
            break;
        }
        let Some(pod) = state.pods().get(key) else { continue };
        let (key, uid) = (key.clone(), pod.meta.uid);
        match board.place(pod) {
            Ok((node, incarnation)) => bindings.push(LeaderOperation::BindPod { key, uid, node, incarnation }),
            Err(why) => {
                look_again_at = Some(PLACING_PAUSE.after(now));
                if notes.len() < NOTES_MAX && is_worth_saying(pod, &why, now) {
                    notes.push(LeaderOperation::NoteUnplaced { key, uid, why });
                }
            }
        }
    }
    notes.truncate(most.saturating_sub(bindings.len()));
    Todo { operations: bindings.into_iter().chain(notes).collect(), look_again_at }
}

fn is_worth_saying(pod: &Pod, why: &Text, now: ClusterTime) -> bool {
    let Some(known) = pod.status.condition(POD_SCHEDULED) else { return true };
    let said = known.last_heartbeat.map(|said| said.cluster);
    known.message != *why && said.is_none_or(|said| now >= UNPLACED_PAUSE.after(said))
}

/// IP-7: addresses for nodes that have none, as far as blocks are free.
pub fn cidr_assignments(state: &State, now: ClusterTime, most: usize) -> Todo {
    let Some(plan) = state.addressing().filter(|_| !state.nodes_without_cidr().is_empty()) else {
        return Todo::default();
    };
    let held = plan.held_until.filter(|until| *until > now);
    let wakes = state.addresses().waking.get_min().map(|(until, _)| *until);
    let has_free = state.addresses().free.iter().all(|free| !free.is_empty()) || wakes.is_some_and(|at| at <= now);
    if held.is_some() || !has_free {
        return Todo { operations: Vec::new(), look_again_at: held.or(wakes.filter(|at| *at > now)) };
    }
    let names: Vec<Text> = state.nodes_without_cidr().iter().take(most).cloned().collect();
    Todo { operations: vec![LeaderOperation::AssignCidrs { names }], look_again_at: None }
}
