//! Derived indexes, kept beside the tables because walking a million nodes would be too slow.
//!
//! Rebuilt from the tables, never stored. Cloning shares everything, as with the tables themselves.

use imbl::{OrdMap, OrdSet};

use crate::object::credential::Credential;
use crate::object::kind::WorkloadKind;
use crate::object::node::Node;
use crate::object::record::Stored;
use crate::object::workload::{Workload, WorkloadKey};
use crate::object::zone::ZoneKey;
use crate::rule::condition_taint::{self, NoExecuteAction};
use crate::store::address_index::AddressIndex;
use crate::store::census::{Census, Evaluation};
use crate::store::eviction_queue::EvictionQueue;
use crate::store::pod_index::PodIndex;
use crate::value::meta::Uid;
use crate::value::text::{Interner, Text};
use crate::value::time::ClusterTime;

#[derive(Debug, Clone, Default)]
pub(crate) struct Derived {
    pub(crate) ready: usize,
    /// Clients by last use.
    pub(crate) recency: OrdMap<u64, u128>,
    pub(crate) interner: Interner,
    pub(crate) census: OrdMap<ZoneKey, Census>,
    /// Per zone, the nodes that wait to be tainted for eviction. Every leader finds the same queues.
    pub(crate) queues: OrdMap<ZoneKey, EvictionQueue>,
    /// Nodes that carry a lifecycle NoExecute taint.
    pub(crate) absent: OrdSet<Text>,
    pub(crate) pods: PodIndex,
    /// Workloads that do not have the pods they ask for.
    pub(crate) unsettled: OrdSet<WorkloadKey>,
    /// Workloads by uid. A pod refers to its workload by this uid.
    pub(crate) employers: OrdSet<(Uid, WorkloadKey)>,
    pub(crate) addresses: AddressIndex,
    /// Credentials of names that no Node has, by when they may be forgotten.
    pub(crate) expired_credentials: OrdSet<(ClusterTime, Text)>,
}

// === impl Derived ===

impl Derived {
    pub(crate) fn enter(&mut self, node: &Node) {
        self.ready += usize::from(node.is_ready());
        let zone = ZoneKey::from_labels(&node.meta.labels);
        self.census.entry(zone.clone()).or_default().count(&node.meta.labels, evaluation(node));
        if waits(node) {
            // In place: a clone of the queue would be copied path by path for each of a zone's nodes.
            self.queues.entry(zone).or_default().enqueue(node.meta.name.clone(), waits_since(node));
        }
        if is_absent(node) {
            self.absent.insert(node.meta.name.clone());
        }
    }

    pub(crate) fn leave(&mut self, node: &Node) {
        self.ready -= usize::from(node.is_ready());
        let zone = ZoneKey::from_labels(&node.meta.labels);
        if let Some(census) = self.census.get_mut(&zone) {
            census.discount(&node.meta.labels, evaluation(node));
            if census.is_deserted() {
                self.census.remove(&zone);
            }
        }
        if waits(node) {
            self.leave_queue(&zone, &node.meta.name);
        }
        if is_absent(node) {
            self.absent.remove(&node.meta.name);
        }
    }

    /// Notes whether there is a Node under the name of a credential.
    pub(crate) fn claim(&mut self, credential: &Credential, is_claimed: bool) {
        let place = (credential.forgettable_from(), credential.node.clone());
        match is_claimed {
            true => self.expired_credentials.remove(&place),
            false => self.expired_credentials.insert(place),
        };
    }

    /// Notes that the workload, or one of its pods, has changed.
    pub(crate) fn note_workload(&mut self, workload: &Workload) {
        let staff = self.pods.staff.get(&workload.meta.uid).cloned().unwrap_or_default();
        let wanted = usize::try_from(workload.spec.replicas).unwrap_or(usize::MAX);
        let is_off_target = match workload.kind {
            WorkloadKind::ReplicaSet => staff.active() != wanted,
            WorkloadKind::StatefulSet => !staff.is_numbered_below(wanted),
            WorkloadKind::DaemonSet => false,
        };
        self.employers.insert((workload.meta.uid, workload.key()));
        match is_off_target || workload.meta.deleted.is_some() {
            true => self.unsettled.insert(workload.key()),
            false => self.unsettled.remove(&workload.key()),
        };
    }

    /// The workload of this uid.
    pub(crate) fn employer(&self, uid: Uid) -> Option<&WorkloadKey> {
        let first = WorkloadKey { kind: WorkloadKind::ReplicaSet, namespace: Text::default(), name: Text::default() };
        self.employers.range((uid, first)..).next().filter(|(own, _)| *own == uid).map(|(_, key)| key)
    }

    pub(crate) fn forget_workload(&mut self, workload: &Workload) {
        self.unsettled.remove(&workload.key());
        self.employers.remove(&(workload.meta.uid, workload.key()));
    }

    fn leave_queue(&mut self, zone: &ZoneKey, name: &str) {
        let Some(queue) = self.queues.get_mut(zone) else { return };
        queue.remove(name);
        if queue.is_empty() {
            self.queues.remove(zone);
        }
    }
}

fn evaluation(node: &Node) -> Evaluation {
    Evaluation::Known(node.status.ready().map(|ready| ready.status))
}

fn waits(node: &Node) -> bool {
    let action = condition_taint::no_execute_action(&node.status.conditions, &node.spec.taints);
    matches!(action, NoExecuteAction::Enqueue(_))
}

/// The replicated moment at which the node went missing, so that all leaders see the same queue.
fn waits_since(node: &Node) -> ClusterTime {
    let transition = node.status.ready().and_then(|ready| ready.last_transition);
    transition.map_or(node.meta.created.cluster, |stamp| stamp.cluster)
}

fn is_absent(node: &Node) -> bool {
    !condition_taint::present_absences(&node.spec.taints).is_empty()
}
