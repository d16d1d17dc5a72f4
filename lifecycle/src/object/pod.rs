//! The Pod object: work that is bound to a node, or waits for one.

mod garbage;
mod placement_refusal;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::garbage::Garbage;
pub use self::placement_refusal::{PlacementRefusal, PlacementRefusalKind, Shortage};
use crate::object::node::{Condition, ConditionStatus, Incarnation, READY, Resources};
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::object::toleration::Toleration;
use crate::value::meta::{ObjectMeta, OwnerReference, Pairs, Uid};
use crate::value::text::{Interner, Text};
use crate::value::time::Stamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    pub namespace: Text,
    pub name: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pod {
    pub meta: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
    /// Set together with `meta.deleted`.
    pub ending: Option<Ending>,
    /// The rest of the manifest, containers included, as compact JSON exactly as given.
    pub unmodelled: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodSpec {
    /// `None` while it waits to be placed.
    pub binding: Option<Binding>,
    pub tolerations: Box<[Toleration]>,
    pub priority: i32,
    /// Seconds that the pod gets to stop in.
    pub grace: u32,
    pub node_selector: Pairs,
    /// Requests of all of its containers together.
    pub requests: Resources,
    pub host_network: bool,
}

/// The node of a pod. The pod belongs to this life of the node only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    pub node: Text,
    pub incarnation: Incarnation,
    pub at: Stamp,
}

/// The end of a pod that was deleted. The pod stays until its node confirms that it has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// Seconds that the pod gets to stop in.
    pub grace: u32,
    /// The node was away then, or has been since: it must say that this pod has stopped before it is ready again.
    pub in_absence: bool,
    /// When the node was deleted, if it lived then: its agent has some time to say that this pod has stopped.
    pub orphaned: Option<Stamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodStatus {
    pub phase: Phase,
    pub conditions: Box<[Condition]>,
    pub reason: Text,
    pub message: Text,
    pub restarts: u32,
    pub started: Option<Stamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// What a manifest asks for. `None` means "not said": an apply leaves that part alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodDraft {
    pub key: PodKey,
    pub labels: Option<Pairs>,
    pub annotations: Option<Pairs>,
    pub finalizers: Option<Box<[Text]>>,
    pub owners: Option<Box<[OwnerReference]>>,
    pub node: Option<Text>,
    pub template: PodTemplate,
}

/// The part of a pod's spec that a workload can give to all of its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodTemplate {
    pub tolerations: Option<Box<[Toleration]>>,
    pub priority: Option<i64>,
    pub grace: Option<i64>,
    pub node_selector: Option<Pairs>,
    pub requests: Resources,
    pub host_network: bool,
    /// Whether the template names its containers: without any it makes no pod.
    pub has_containers: bool,
    pub unmodelled: Option<Text>,
}

/// What an agent says of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReport {
    pub key: PodKey,
    pub uid: Uid,
    pub phase: Phase,
    pub ready: bool,
    pub restarts: u32,
    pub reason: Text,
    pub message: Text,
    /// Nothing of it runs any more, and nothing of it will be started again.
    pub stopped: bool,
}

/// Kubernetes' default for `terminationGracePeriodSeconds`.
pub const GRACE_DEFAULT: u32 = 30;

/// A longer grace is taken for a mistake.
pub const GRACE_MAX: i64 = 7 * 24 * 3600;

/// How many pods a cluster can have, and how many one node.
pub const PODS_MAX: usize = 4_000_000;
pub const PODS_PER_NODE_MAX: usize = 1024;

pub const POD_SCHEDULED: &str = "PodScheduled";
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The reason that upstream's kubelet gives when it drives a pod off a node under pressure.
pub const EVICTED: &str = "Evicted";

// === impl PodKey ===

impl PodKey {
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.namespace, self.name))
    }
}

// === impl Pod ===

impl Pod {
    pub fn node(&self) -> Option<&Text> {
        self.spec.binding.as_ref().map(|binding| &binding.node)
    }

    pub fn is_bound_to(&self, node: &str, incarnation: Incarnation) -> bool {
        self.spec.binding.as_ref().is_some_and(|own| own.node == *node && own.incarnation == incarnation)
    }

    pub fn is_terminating(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether the pod waits to be placed.
    pub fn is_waiting(&self) -> bool {
        self.spec.binding.is_none() && !self.is_terminating() && !self.status.phase.is_final()
    }

    /// Whether the pod counts as one of those that its workload asks for.
    pub fn is_active(&self) -> bool {
        !self.is_terminating() && !self.status.phase.is_final()
    }

    pub fn is_ready(&self) -> bool {
        self.status.condition(READY).is_some_and(|ready| ready.status == ConditionStatus::True)
    }

    /// The workload that made it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.meta.owners.iter().find(|owner| owner.controller)
    }

    pub(crate) fn share_texts(&mut self, interner: &mut Interner) {
        for (key, value) in self.meta.labels.texts_mut().chain(self.spec.node_selector.texts_mut()) {
            interner.share(key);
            interner.share(value);
        }
        self.meta.annotations.texts_mut().for_each(|(key, _)| interner.share(key));
        self.meta.namespace.iter_mut().for_each(|namespace| interner.share(namespace));
        for owner in &mut self.meta.owners {
            [&mut owner.api_version, &mut owner.kind, &mut owner.name]
                .into_iter()
                .for_each(|text| interner.share(text));
        }
        for toleration in &mut self.spec.tolerations {
            interner.share(&mut toleration.key);
            interner.share(&mut toleration.value);
        }
        self.spec.requests.names_mut().for_each(|resource| interner.share(resource));
        self.spec.binding.iter_mut().for_each(|binding| interner.share(&mut binding.node));
        for condition in &mut self.status.conditions {
            let texts = [&mut condition.kind, &mut condition.reason, &mut condition.message];
            texts.into_iter().for_each(|text| interner.share(text));
        }
        [&mut self.status.reason, &mut self.status.message].into_iter().for_each(|text| interner.share(text));
        // The pods of one workload differ in their names only, so they share all of this.
        self.unmodelled.iter_mut().for_each(|manifest| interner.share(manifest));
    }
}

impl PodStatus {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Sets when a condition was last reported, even if its status is the same.
    pub(crate) fn stamp_condition(&mut self, kind: &str, now: Stamp) {
        let condition = self.conditions.iter_mut().find(|known| known.kind == kind);
        condition.into_iter().for_each(|condition| condition.last_heartbeat = Some(now));
    }

    /// Sets a condition; while its status stays the same, so does the time of its transition.
    pub(crate) fn set_condition(&mut self, kind: &str, status: ConditionStatus, says: (&str, &str), now: Stamp) {
        let known = self.condition(kind).filter(|known| known.status == status);
        let last_transition = known.and_then(|known| known.last_transition).or(Some(now));
        let (reason, message) = (Text::from(says.0), Text::from(says.1));
        let condition =
            Condition { kind: Text::from(kind), status, last_heartbeat: None, last_transition, reason, message };
        match self.conditions.iter_mut().find(|known| known.kind == kind) {
            Some(known) => *known = condition,
            None => self.conditions = std::mem::take(&mut self.conditions).into_iter().chain([condition]).collect(),
        }
    }
}

impl Versioned for Pod {}

impl Stored for Pod {
    type Key = PodKey;

    fn key(&self) -> PodKey {
        PodKey { namespace: self.meta.namespace.clone().unwrap_or_default(), name: self.meta.name.clone() }
    }

    fn record_key(key: &PodKey) -> RecordKey {
        RecordKey::Pod { namespace: key.namespace.clone(), name: key.name.clone() }
    }
}

// === impl Phase ===

impl Phase {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether nothing of the pod will run again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not one of Pending, Running, Succeeded, Failed, Unknown")]
pub struct PhaseError {
    pub text: Text,
}

impl FromStr for Phase {
    type Err = PhaseError;

    fn from_str(text: &str) -> Result<Self, PhaseError> {
        let named = Self::ALL.into_iter().find(|phase| phase.as_str() == text);
        named.ok_or_else(|| PhaseError { text: Text::clipped(text, 64) })
    }
}
