//! The replicated state: a table per kind, a few counters, and what follows from them.
//!
//! Cloning shares all chunks, so a snapshot of any size is a handful of pointers. `apply` changes the state, and
//! `record` encodes it.

mod addressing;
mod builder;
mod credential;

use std::iter;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::command::Outcome;
use crate::command::client::ClientRecord;
use crate::object::addressing::{Addressing, Resting};
use crate::object::aggregator::AggregatorRecord;
use crate::object::credential::Credential;
use crate::object::event::Event;
use crate::object::join_token::JoinToken;
use crate::object::level_in_force::LevelInForce;
use crate::object::node::{Node, Slot};
use crate::object::pod::{Pod, PodKey};
use crate::object::policy::Policy;
use crate::object::policy_state::FleetPolicyState;
use crate::object::record::{RecordKey, Stored, Versioned, encode};
use crate::object::replica::ReplicaRecord;
use crate::object::slot::{FIRST_GENERATION, FreeSlot};
use crate::object::workload::{Workload, WorkloadKey};
use crate::object::zone::ZoneKey;
use crate::object::zone::ZoneRecord;
use crate::store::address_index::AddressIndex;
use crate::store::census::Census;
use crate::store::change::Change;
use crate::store::derived::Derived;
use crate::store::eviction_queue::EvictionQueue;
use crate::store::pod_index::{Staff, Tally, Tenants};
use crate::store::table::{Digest, Table};
use crate::value::level::Level;
use crate::value::meta::{Revision, Uid};
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp};

pub use builder::StateBuilder;

/// How far a restore can raise the revision: far enough below the largest number that counting never reaches it.
const REVISION_CEILING: u64 = u64::MAX / 2;

#[derive(Debug, Clone, Default)]
pub struct State {
    pub(crate) counters: Counters,
    pub(crate) level: LevelInForce,
    pub(crate) nodes: Table<Node>,
    pub(crate) events: Table<Event>,
    pub(crate) replicas: Table<ReplicaRecord>,
    pub(crate) clients: Table<ClientRecord>,
    pub(crate) free_slots: Table<FreeSlot>,
    pub(crate) policy_state: FleetPolicyState,
    pub(crate) zones: Table<ZoneRecord>,
    pub(crate) aggregators: Table<AggregatorRecord>,
    pub(crate) pods: Table<Pod>,
    pub(crate) workloads: Table<Workload>,
    pub(crate) addressing: Option<Arc<Addressing>>,
    pub(crate) resting: Table<Resting>,
    pub(crate) join_tokens: Table<JoinToken>,
    pub(crate) credentials: Table<Credential>,
    pub(crate) derived: Derived,
}

/// The one record that is not a row of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) revision: Revision,
    /// The stamp of the last batch; its cluster time is the highest seen.
    pub(crate) stamp: Stamp,
    /// Raft cluster generation: how often the state was restored into a new cluster.
    pub(crate) generation: u64,
    /// Nodes created so far.
    pub(crate) incarnations: u64,
    /// One above the highest slot index ever given out.
    pub(crate) slots: u32,
    /// Events recorded so far.
    pub(crate) events: u64,
    /// Requests remembered so far.
    pub(crate) requests: u64,
}

impl Versioned for Counters {}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    pub total: usize,
    pub ready: usize,
}

/// The result of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// One per command, in order.
    pub outcomes: Vec<Outcome>,
    /// In order of revision.
    pub changes: Vec<Change>,
    /// Every record that is now different or gone, each once, in key order.
    pub touched: Vec<RecordKey>,
}

// === impl State ===

impl State {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn revision(&self) -> Revision {
        self.counters.revision
    }

    pub fn cluster_time(&self) -> ClusterTime {
        self.counters.stamp.cluster
    }

    /// The moment of the last batch.
    pub fn stamp(&self) -> Stamp {
        self.counters.stamp
    }

    /// Raft cluster generation, raised by every restore.
    pub fn generation(&self) -> u64 {
        self.counters.generation
    }

    /// The level that all replicas speak now.
    pub fn level(&self) -> Level {
        self.level.level
    }

    pub fn level_in_force(&self) -> &LevelInForce {
        &self.level
    }

    pub fn nodes(&self) -> &Table<Node> {
        &self.nodes
    }

    pub fn events(&self) -> &Table<Event> {
        &self.events
    }

    pub fn replicas(&self) -> &Table<ReplicaRecord> {
        &self.replicas
    }

    pub fn clients(&self) -> &Table<ClientRecord> {
        &self.clients
    }

    pub fn free_slots(&self) -> &Table<FreeSlot> {
        &self.free_slots
    }

    pub fn policy(&self) -> &Policy {
        &self.policy_state.policy
    }

    pub fn policy_state(&self) -> &FleetPolicyState {
        &self.policy_state
    }

    /// The zones as they were last assessed.
    pub fn zones(&self) -> &Table<ZoneRecord> {
        &self.zones
    }

    pub fn aggregators(&self) -> &Table<AggregatorRecord> {
        &self.aggregators
    }

    pub fn pods(&self) -> &Table<Pod> {
        &self.pods
    }

    pub fn workloads(&self) -> &Table<Workload> {
        &self.workloads
    }

    /// The plan for nodes' addresses, if the cluster gives them out.
    pub fn addressing(&self) -> Option<&Addressing> {
        self.addressing.as_deref()
    }

    /// Blocks that rest until another node may have them.
    pub fn resting(&self) -> &Table<Resting> {
        &self.resting
    }

    pub fn join_tokens(&self) -> &Table<JoinToken> {
        &self.join_tokens
    }

    /// The keys that speak for nodes, as far as this cluster signed or revoked them.
    pub fn credentials(&self) -> &Table<Credential> {
        &self.credentials
    }

    /// The pods that are bound to the nodes of this name.
    pub fn tenants(&self, node: &str) -> Option<&Tenants> {
        self.derived.pods.tenants.get(node)
    }

    /// The pods of a workload.
    pub fn staff(&self, workload: Uid) -> Option<&Staff> {
        self.derived.pods.staff.get(&workload)
    }

    /// Pods without a node, in the order of their turns.
    pub fn waiting_pods(&self) -> impl ExactSizeIterator<Item = &PodKey> {
        self.derived.pods.waiting.iter().map(|(_, _, key)| key)
    }

    /// Pods that have to leave their node, and when, the earliest first.
    pub fn leaving_pods(&self) -> impl ExactSizeIterator<Item = (ClusterTime, &PodKey)> {
        self.derived.pods.leaving.iter()
    }

    pub fn leaves_at(&self, pod: &PodKey) -> Option<ClusterTime> {
        self.derived.pods.leaving.moment(pod)
    }

    /// GC-2 to GC-4: pods whose stop no agent will confirm, and from when on they may be removed, the earliest first.
    pub fn collectable_pods(&self) -> impl ExactSizeIterator<Item = (ClusterTime, &PodKey)> {
        self.derived.pods.garbage.iter()
    }

    /// GC-1: pods that have ended, in the order in which they go.
    pub fn finished_pods(&self) -> impl ExactSizeIterator<Item = &PodKey> {
        self.derived.pods.finished.iter().map(|(_, _, key)| key)
    }

    pub fn pod_tally(&self) -> Tally {
        self.derived.pods.tally
    }

    /// Workloads that may need pods made or deleted.
    pub fn unsettled_workloads(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.derived.unsettled.iter()
    }

    /// The workload of this uid.
    pub fn employer(&self, uid: Uid) -> Option<&WorkloadKey> {
        self.derived.employer(uid)
    }

    /// Nodes without addresses for pods.
    pub fn nodes_without_cidr(&self) -> &OrdSet<Text> {
        &self.derived.addresses.wanting
    }

    /// How many blocks of each pool are free.
    pub fn free_blocks(&self) -> impl Iterator<Item = u64> {
        self.derived.addresses.free.iter().map(|free| free.len())
    }

    pub(crate) fn addresses(&self) -> &AddressIndex {
        &self.derived.addresses
    }

    /// The node that a pod belongs to, in the life that it belongs to.
    pub fn node_of(&self, pod: &Pod) -> Option<&Arc<Node>> {
        let binding = pod.spec.binding.as_ref()?;
        self.nodes.get(&binding.node).filter(|node| node.incarnation == binding.incarnation)
    }

    /// The counts of nodes in each zone at this moment.
    pub fn census(&self) -> impl Iterator<Item = (&ZoneKey, &Census)> {
        self.derived.census.iter()
    }

    pub fn census_of(&self, zone: &ZoneKey) -> Census {
        self.derived.census.get(zone).copied().unwrap_or_default()
    }

    /// The nodes that wait in a zone to be tainted for eviction.
    pub fn queue(&self, zone: &ZoneKey) -> Option<&EvictionQueue> {
        self.derived.queues.get(zone)
    }

    /// The zones in which a node waits.
    pub fn queues(&self) -> impl Iterator<Item = (&ZoneKey, &EvictionQueue)> {
        self.derived.queues.iter()
    }

    /// Nodes that carry a lifecycle NoExecute taint.
    pub fn absent(&self) -> &OrdSet<Text> {
        &self.derived.absent
    }

    /// One above the highest slot index ever given out: how long a table by slot must be.
    pub fn slot_limit(&self) -> u32 {
        self.counters.slots
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    pub fn node_counts(&self) -> NodeCounts {
        NodeCounts { total: self.nodes.len(), ready: self.derived.ready }
    }

    /// Equal on all replicas that applied the same log. It covers every record, the counters included.
    pub fn digest(&self) -> Digest {
        let counters = Digest::of_record(&RecordKey::Counters, &encode(&self.counters));
        let policy_state = self
            .record(&RecordKey::FleetPolicyState)
            .map(|value| Digest::of_record(&RecordKey::FleetPolicyState, &value));
        [self.objects_digest(), self.replicas.digest(), self.clients.digest(), self.free_slots.digest()]
            .into_iter()
            .chain([self.zones.digest(), self.aggregators.digest(), self.resting.digest()])
            .chain([self.join_tokens.digest(), self.credentials.digest()])
            .chain(policy_state)
            .chain(
                self.record(&RecordKey::LevelInForce).map(|value| Digest::of_record(&RecordKey::LevelInForce, &value)),
            )
            .chain(self.record(&RecordKey::Addressing).map(|value| Digest::of_record(&RecordKey::Addressing, &value)))
            .fold(counters, Digest::plus)
    }

    /// Covers the objects that watchers see.
    pub fn objects_digest(&self) -> Digest {
        let workloads = self.pods.digest().plus(self.workloads.digest());
        self.nodes.digest().plus(self.events.digest()).plus(workloads)
    }

    /// The value of a record as it is now; `None` if there is no such record.
    pub fn record(&self, key: &RecordKey) -> Option<Vec<u8>> {
        fn encoded<T: Stored>(row: Option<&Arc<T>>) -> Option<Vec<u8>> {
            row.map(|row| encode(row.as_ref()))
        }
        match key {
            RecordKey::Counters => Some(encode(&self.counters)),
            RecordKey::LevelInForce => (!self.level.is_default()).then(|| encode(&self.level)),
            RecordKey::Node { name } => encoded(self.nodes.get(name)),
            RecordKey::Event { sequence } => encoded(self.events.get(sequence)),
            RecordKey::Replica { id } => encoded(self.replicas.get(id)),
            RecordKey::Client { id } => encoded(self.clients.get(id)),
            RecordKey::FreeSlot { index } => encoded(self.free_slots.get(index)),
            RecordKey::FleetPolicyState => (!self.policy_state.is_default()).then(|| encode(&self.policy_state)),
            RecordKey::Zone { region, zone } => {
                encoded(self.zones.get(&ZoneKey { region: region.clone(), zone: zone.clone() }))
            }
            RecordKey::Aggregator { name } => encoded(self.aggregators.get(name)),
            RecordKey::Pod { namespace, name } => {
                encoded(self.pods.get(&PodKey { namespace: namespace.clone(), name: name.clone() }))
            }
            RecordKey::Workload { kind, namespace, name } => {
                let key = WorkloadKey { kind: *kind, namespace: namespace.clone(), name: name.clone() };
                encoded(self.workloads.get(&key))
            }
            RecordKey::Addressing => self.addressing.as_ref().map(|plan| encode(plan.as_ref())),
            RecordKey::Resting { cidr } => encoded(self.resting.get(cidr)),
            RecordKey::JoinToken { id } => encoded(self.join_tokens.get(id)),
            RecordKey::Credential { node } => encoded(self.credentials.get(node)),
        }
    }

    /// Every record, in key order.
    pub fn records(&self) -> impl Iterator<Item = (RecordKey, Vec<u8>)> + '_ {
        iter::once((RecordKey::Counters, encode(&self.counters)))
            .chain(self.record(&RecordKey::LevelInForce).map(|value| (RecordKey::LevelInForce, value)))
            .chain(self.nodes.records())
            .chain(self.events.records())
            .chain(self.replicas.records())
            .chain(self.clients.records())
            .chain(self.free_slots.records())
            .chain(self.record(&RecordKey::FleetPolicyState).map(|value| (RecordKey::FleetPolicyState, value)))
            .chain(self.zones.records())
            .chain(self.aggregators.records())
            .chain(self.pods.records())
            .chain(self.workloads.records())
            .chain(self.record(&RecordKey::Addressing).map(|value| (RecordKey::Addressing, value)))
            .chain(self.resting.records())
            .chain(self.join_tokens.records())
            .chain(self.credentials.records())
    }

    /// Makes this the state of a new raft cluster, as a restore does.
    ///
    /// Revisions and incarnations move on, so that none seen in the old cluster means something else in the new one: an
    /// agent or a message of a node that was created after the backup does not fit one created after the restore. The
    /// replicas and the answered requests belong to the old cluster and are forgotten.
    pub fn raise_revision(&mut self, by: u64, generation: u64) {
        self.counters.revision = Revision(self.counters.revision.0.saturating_add(by).min(REVISION_CEILING));
        self.counters.incarnations = self.counters.incarnations.saturating_add(by).min(REVISION_CEILING);
        self.counters.generation = generation;
        self.replicas = Table::default();
        self.clients = Table::default();
        self.derived.recency = OrdMap::new();
        self.hold_addresses();
        self.doubt_credentials();
    }

    /// A node that renewed or joined after the backup was made has another key than the state knows: certificates
    /// speak for themselves until the next renewal. Tokens may have been used, so all are revoked. What was revoked
    /// stays so.
    fn doubt_credentials(&mut self) {
        let now = self.counters.stamp;
        let unrevoked = self.credentials.iter().filter(|credential| credential.revoked.is_none());
        let doubtful: Vec<Text> = unrevoked.map(|credential| credential.node.clone()).collect();
        doubtful.iter().for_each(|node| self.remove_credential(node));
        let open = self.join_tokens.iter().filter(|token| token.used.is_none() && token.revoked.is_none());
        let open: Vec<_> = open.cloned().collect();
        for token in open {
            self.join_tokens.insert(Arc::new(JoinToken { revoked: Some(now), ..token.as_ref().clone() }));
        }
    }

    /// A node that joined after the backup was made is not in the state and may still use the addresses it was given.
    fn hold_addresses(&mut self) {
        let now = self.counters.stamp.cluster;
        if let Some(plan) = &mut self.addressing {
            let plan = Arc::make_mut(plan);
            plan.held_until = Some(plan.quarantine.after(now));
        }
    }

    /// The slot that the next node will get: the smallest free one, else a new one.
    pub(crate) fn next_slot(&self) -> Slot {
        match self.free_slots.first() {
            Some(free) => free.taken(),
            None => Slot { index: self.counters.slots, generation: FIRST_GENERATION },
        }
    }
}
