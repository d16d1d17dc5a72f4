//! Pod index: the pods of each node and of each workload, those that wait, those that must leave, and garbage.
//!
//! Rebuilt from the tables, never stored; cloning shares everything. When a pod has to leave, or is garbage, follows
//! from the pod *and* its node, so every change of either must be noted here.

use imbl::{OrdMap, OrdSet};
use std::cmp::Reverse;

use crate::object::node::Node;
use crate::object::pod::{Phase, Pod, PodKey};
use crate::object::record::Stored;
use crate::object::workload::Workload;
use crate::rule::garbage;
use crate::rule::taint_eviction;
use crate::store::agenda::Agenda;
use crate::store::load::Load;
use crate::store::table::Table;
use crate::value::meta::{OwnerReference, Uid};
use crate::value::text::Text;
use crate::value::time::ClusterTime;

/// The highest priority first, then the oldest, then by name.
pub(crate) type Turn = (Reverse<i32>, ClusterTime, PodKey);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodIndex {
    pub(crate) tenants: OrdMap<Text, Tenants>,
    pub(crate) staff: OrdMap<Uid, Staff>,
    pub(crate) waiting: OrdSet<Turn>,
    pub(crate) leaving: Agenda,
    /// GC-2 to GC-4: from when on they may be removed.
    pub(crate) garbage: Agenda,
    /// GC-1: in the order in which they go.
    pub(crate) finished: OrdSet<(bool, ClusterTime, PodKey)>,
    pub(crate) tally: Tally,
}

/// The pods that are bound to the nodes of one name, in any of its lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenants {
    pods: OrdSet<PodKey>,
    load: Load,
}

/// The pods of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staff {
    pods: OrdSet<PodKey>,
    active: usize,
    ready: usize,
    /// Numbers of the pods that are called by their workload's name and a number, and still keep their name.
    ordinals: OrdSet<(u32, PodKey)>,
    /// Active pods with other names.
    strays: usize,
}

/// How many pods there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub pending: usize,
    pub running: usize,
    pub succeeded: usize,
    pub failed: usize,
    pub unknown: usize,
    pub ready: usize,
    /// Deleted, and not confirmed stopped.
    pub terminating: usize,
}

// === impl PodIndex ===

impl PodIndex {
    pub(crate) fn enter(&mut self, pod: &Pod, node: Option<&Node>) {
        let key = pod.key();
        if let Some(name) = pod.node() {
            let mut tenants = self.tenants.get(name).cloned().unwrap_or_default();
            tenants.pods.insert(key.clone());
            tenants.load.add(pod);
            self.tenants.insert(name.clone(), tenants);
        }
        if let Some(owner) = pod.controller() {
            let mut staff = self.staff.get(&owner.uid).cloned().unwrap_or_default();
            staff.enter(pod, &owner.name, key.clone());
            self.staff.insert(owner.uid, staff);
        }
        if let Some(turn) = turn(pod, &key) {
            self.waiting.insert(turn);
        }
        if let Some((kept, created)) = garbage::rank(pod) {
            self.finished.insert((kept, created, key.clone()));
        }
        self.tally.count(pod, 1);
        self.set_moments(&key, pod, node);
    }

    pub(crate) fn leave(&mut self, pod: &Pod) {
        let key = pod.key();
        if let Some(name) = pod.node() {
            self.vacate(name, pod, &key);
        }
        if let Some(owner) = pod.controller() {
            self.dismiss(owner, pod, &key);
        }
        if let Some(turn) = turn(pod, &key) {
            self.waiting.remove(&turn);
        }
        if let Some((kept, created)) = garbage::rank(pod) {
            self.finished.remove(&(kept, created, key.clone()));
        }
        self.tally.count(pod, -1);
        self.leaving.set(&key, None);
        self.garbage.set(&key, None);
    }

    /// Notes that the node has changed or is gone: its pods may leave at another time, stay, or be garbage.
    pub(crate) fn node_changed(&mut self, name: &str, node: Option<&Node>, pods: &Table<Pod>) {
        let Some(tenants) = self.tenants.get(name).cloned() else { return };
        for key in tenants.pods.iter() {
            if let Some(pod) = pods.get(key) {
                self.set_moments(key, pod, node);
            }
        }
    }

    fn vacate(&mut self, name: &Text, pod: &Pod, key: &PodKey) {
        let Some(mut tenants) = self.tenants.remove(name) else { return };
        tenants.pods.remove(key);
        tenants.load.remove(pod);
        if !tenants.pods.is_empty() {
            self.tenants.insert(name.clone(), tenants);
        }
    }

    fn dismiss(&mut self, owner: &OwnerReference, pod: &Pod, key: &PodKey) {
        let Some(mut staff) = self.staff.remove(&owner.uid) else { return };
        staff.leave(pod, &owner.name, key);
        if !staff.pods.is_empty() {
            self.staff.insert(owner.uid, staff);
        }
    }

    fn set_moments(&mut self, key: &PodKey, pod: &Pod, node: Option<&Node>) {
        self.garbage.set(key, garbage::garbage_from(pod, node).map(|(_, from)| from));
        let node = node.filter(|node| pod.is_bound_to(&node.meta.name, node.incarnation));
        self.leaving.set(key, node.and_then(|node| taint_eviction::leaves_at(pod, &node.spec.taints)));
    }
}

fn turn(pod: &Pod, key: &PodKey) -> Option<Turn> {
    pod.is_waiting().then(|| (Reverse(pod.spec.priority), pod.meta.created.cluster, key.clone()))
}

// === impl Tenants ===

impl Tenants {
    pub fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.iter()
    }

    pub fn len(&self) -> usize {
        self.pods.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    pub fn load(&self) -> &Load {
        &self.load
    }
}

// === impl Staff ===

impl Staff {
    fn enter(&mut self, pod: &Pod, owner: &str, key: PodKey) {
        self.active += usize::from(pod.is_active());
        self.ready += usize::from(pod.is_active() && pod.is_ready());
        self.strays += usize::from(is_stray(pod, owner));
        if let Some(ordinal) = ordinal(pod, owner) {
            self.ordinals.insert((ordinal, key.clone()));
        }
        self.pods.insert(key);
    }

    fn leave(&mut self, pod: &Pod, owner: &str, key: &PodKey) {
        self.pods.remove(key);
        self.active -= usize::from(pod.is_active());
        self.ready -= usize::from(pod.is_active() && pod.is_ready());
        self.strays -= usize::from(is_stray(pod, owner));
        if let Some(ordinal) = ordinal(pod, owner) {
            self.ordinals.remove(&(ordinal, key.clone()));
        }
    }

    /// Whether the names with the numbers below `count` are all taken, and no other pod is there.
    pub(crate) fn is_numbered_below(&self, count: usize) -> bool {
        let highest = self.ordinals.get_max().map_or(0, |(ordinal, _)| u64::from(*ordinal) + 1);
        self.strays == 0 && self.ordinals.len() == count && highest == count as u64
    }

    pub fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.iter()
    }

    /// All pods, including those that are on their way out.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The pods that count as what the workload asks for.
    pub fn active(&self) -> usize {
        self.active
    }

    pub fn ready(&self) -> usize {
        self.ready
    }
}

/// A pod that has ended and is not being deleted does not keep its name: another pod needs it.
fn ordinal(pod: &Pod, owner: &str) -> Option<u32> {
    let keeps_name = pod.is_terminating() || !pod.status.phase.is_final();
    keeps_name.then(|| Workload::ordinal(owner, &pod.meta.name)).flatten()
}

fn is_stray(pod: &Pod, owner: &str) -> bool {
    pod.is_active() && Workload::ordinal(owner, &pod.meta.name).is_none()
}

// === impl Tally ===

impl Tally {
    fn count(&mut self, pod: &Pod, by: isize) {
        let place = match pod.status.phase {
            Phase::Pending => &mut self.pending,
            Phase::Running => &mut self.running,
            Phase::Succeeded => &mut self.succeeded,
            Phase::Failed => &mut self.failed,
            Phase::Unknown => &mut self.unknown,
        };
        *place = place.saturating_add_signed(by);
        if pod.is_ready() {
            self.ready = self.ready.saturating_add_signed(by);
        }
        if pod.is_terminating() {
            self.terminating = self.terminating.saturating_add_signed(by);
        }
    }
}
