//! The Node object: one managed machine.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::object::taint::Taint;
use crate::value::meta::{ObjectMeta, Pairs};
use crate::value::quantity::Quantity;
use crate::value::text::{Interner, Text};
use crate::value::time::Stamp;

/// A dense index for the pulse tables; reused after deletion under a higher generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    pub index: u32,
    pub generation: u32,
}

/// Changes only when the Node is created anew; never reused for the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    pub meta: ObjectMeta,
    pub slot: Slot,
    pub incarnation: Incarnation,
    pub spec: NodeSpec,
    pub status: NodeStatus,
    /// Manifest fields that Muster does not model, kept as compact JSON exactly as given.
    pub unmodelled: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// None, one, or one per address family.
    pub pod_cidrs: Box<[IpNet]>,
    pub provider_id: Option<Text>,
    pub unschedulable: bool,
    pub taints: Box<[Taint]>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeStatus {
    pub capacity: Resources,
    pub allocatable: Resources,
    pub conditions: Box<[Condition]>,
    pub addresses: Box<[Address]>,
    pub info: Option<Box<NodeInfo>>,
}

/// Resource names with quantities: unique names in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Box<[(Text, Quantity)]>")]
pub struct Resources(Box<[(Text, Quantity)]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition {
    pub kind: Text,
    pub status: ConditionStatus,
    pub last_heartbeat: Option<Stamp>,
    pub last_transition: Option<Stamp>,
    pub reason: Text,
    pub message: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS` or `ExternalDNS`.
    pub kind: Text,
    pub address: Text,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeInfo {
    pub machine_id: Text,
    pub system_uuid: Text,
    pub boot_id: Text,
    pub kernel_version: Text,
    pub os_image: Text,
    pub container_runtime_version: Text,
    pub kubelet_version: Text,
    pub operating_system: Text,
    pub architecture: Text,
    /// Bytes of swap; must be positive when present.
    pub swap_capacity: Option<i64>,
}

/// What a manifest asks for. `None` means "not said": an apply leaves that part alone, a replace
/// resets it to its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDraft {
    pub name: Text,
    pub labels: Option<Pairs>,
    pub annotations: Option<Pairs>,
    pub finalizers: Option<Box<[Text]>>,
    pub owners: Option<Box<[crate::value::meta::OwnerReference]>>,
    pub pod_cidrs: Option<Box<[IpNet]>>,
    pub provider_id: Option<Text>,
    pub unschedulable: Option<bool>,
    pub taints: Option<Box<[Taint]>>,
    /// Used when the Node is created; later only through a status update (NV-9).
    pub status: Option<NodeStatus>,
    pub unmodelled: Option<Text>,
}

/// The condition type that says whether a node is ready.
pub const READY: &str = "Ready";
pub const MEMORY_PRESSURE: &str = "MemoryPressure";
pub const DISK_PRESSURE: &str = "DiskPressure";
pub const PID_PRESSURE: &str = "PIDPressure";
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Conditions that a node's own agent reports, and that a silent node can no longer vouch for. Its network and custom
/// conditions belong to other components, which may still be there to vouch for them.
pub const AGENT_CONDITIONS: [&str; 4] = [READY, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE];

/// Longer annotation values are rarely shared, so they are not pooled.
const RECURRING_MAX: usize = 32;

/// How many nodes a cluster can have.
pub const NODES_MAX: usize = 2_000_000;

impl Node {
    /// Replaces recurring strings by pooled ones. Strings that differ from node to node stay out of the pool. The
    /// exception is the node's own name, which labels and addresses often repeat.
    pub(crate) fn share_texts(&mut self, interner: &mut Interner) {
        self.each_recurring(&mut |text| interner.share(text));
    }

    fn each_recurring(&mut self, visit: &mut impl FnMut(&mut Text)) {
        let name = self.meta.name.clone();
        let mut share = |text: &mut Text| if *text == name { *text = name.clone() } else { visit(text) };
        for (key, value) in self.meta.labels.texts_mut() {
            share(key);
            share(value);
        }
        for (key, value) in self.meta.annotations.texts_mut() {
            share(key);
            if value.len() <= RECURRING_MAX {
                share(value);
            }
        }
        self.meta.finalizers.iter_mut().for_each(&mut share);
        for taint in &mut self.spec.taints {
            share(&mut taint.key);
            share(&mut taint.value);
        }
        self.status.each_recurring(&name, visit);
    }

    /// Parts a new node from the command that brought it: recurring texts become pooled copies, all others its own.
    pub(crate) fn detach_texts(&mut self, interner: &mut Interner) {
        self.meta.name.detach();
        self.spec.provider_id.iter_mut().for_each(Text::detach);
        self.status.addresses.iter_mut().for_each(|address| address.address.detach());
        if let Some(info) = &mut self.status.info {
            [&mut info.machine_id, &mut info.system_uuid, &mut info.boot_id].into_iter().for_each(Text::detach);
        }
        self.unmodelled.iter_mut().for_each(Text::detach);
        self.each_recurring(&mut |text| interner.take_in(text));
    }

    pub fn is_ready(&self) -> bool {
        self.status.ready().is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    pub fn is_unknown(&self) -> bool {
        self.status.ready().is_some_and(|condition| condition.status == ConditionStatus::Unknown)
    }
}

impl Condition {
    /// Whether the node's own agent repeats it with every beat. It does not repeat an Unknown condition.
    pub fn is_vouched_for(&self) -> bool {
        self.status != ConditionStatus::Unknown && AGENT_CONDITIONS.contains(&self.kind.as_str())
    }
}

impl NodeStatus {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn ready(&self) -> Option<&Condition> {
        self.condition(READY)
    }

    /// Sets since when each condition has had its status.
    ///
    /// While its status stays the same, so does the time of its transition, whatever a manifest says; a new status
    /// counts from now. Of a time that came with it only the wall half is kept, because no client knows cluster time.
    pub(crate) fn settle_times(&mut self, before: &NodeStatus, now: Stamp) {
        let ours = |given: Stamp| Stamp { cluster: now.cluster, wall: given.wall };
        for condition in &mut self.conditions {
            let known = before.condition(&condition.kind).filter(|known| known.status == condition.status);
            let transition = known.and_then(|known| known.last_transition);
            condition.last_transition = transition.or(Some(condition.last_transition.map_or(now, ours)));
            let heartbeat = known.and_then(|known| known.last_heartbeat);
            condition.last_heartbeat = condition.last_heartbeat.map(|given| match heartbeat {
                Some(heartbeat) if heartbeat.wall == given.wall => heartbeat,
                Some(_) | None => ours(given),
            });
        }
    }

    fn each_recurring(&mut self, name: &Text, visit: &mut impl FnMut(&mut Text)) {
        self.capacity.names_mut().chain(self.allocatable.names_mut()).for_each(&mut *visit);
        for condition in &mut self.conditions {
            let texts = [&mut condition.kind, &mut condition.reason, &mut condition.message];
            texts.into_iter().for_each(&mut *visit);
        }
        for address in &mut self.addresses {
            visit(&mut address.kind);
            if address.address == *name {
                address.address = name.clone();
            }
        }
        if let Some(info) = &mut self.info {
            info.each_recurring(visit);
        }
    }
}

impl NodeInfo {
    /// Machine, system and boot ids are left alone: no two nodes have the same.
    fn each_recurring(&mut self, visit: &mut impl FnMut(&mut Text)) {
        let recurring = [
            &mut self.kernel_version,
            &mut self.os_image,
            &mut self.container_runtime_version,
            &mut self.kubelet_version,
            &mut self.operating_system,
            &mut self.architecture,
        ];
        recurring.into_iter().for_each(visit);
    }
}

impl Resources {
    pub fn get(&self, name: &str) -> Option<Quantity> {
        let found = self.0.binary_search_by(|(own, _)| own.as_str().cmp(name)).ok()?;
        Some(self.0[found].1)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Text, Quantity)> + ExactSizeIterator + '_ {
        self.0.iter().map(|(name, quantity)| (name, *quantity))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.0.iter_mut().map(|(name, _)| name)
    }
}

/// Of resources with the same name, the last one wins.
impl<N: Into<Text>> FromIterator<(N, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(resources: I) -> Self {
        let sorted: BTreeMap<Text, Quantity> =
            resources.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Self(sorted.into_iter().collect())
    }
}

impl TryFrom<Box<[(Text, Quantity)]>> for Resources {
    type Error = &'static str;

    fn try_from(resources: Box<[(Text, Quantity)]>) -> Result<Self, Self::Error> {
        if resources.is_sorted_by(|(left, _), (right, _)| left < right) {
            Ok(Self(resources))
        } else {
            Err("resource names must be unique and in ascending order")
        }
    }
}

impl Versioned for Node {}

impl Stored for Node {
    type Key = Text;

    fn key(&self) -> Text {
        self.meta.name.clone()
    }

    fn record_key(name: &Text) -> RecordKey {
        RecordKey::Node { name: name.clone() }
    }
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not one of True, False, Unknown")]
pub struct ConditionStatusError {
    pub text: Text,
}

impl FromStr for ConditionStatus {
    type Err = ConditionStatusError;

    fn from_str(text: &str) -> Result<Self, ConditionStatusError> {
        [Self::True, Self::False, Self::Unknown]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| ConditionStatusError { text: Text::clipped(text, 64) })
    }
}
