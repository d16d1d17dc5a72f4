//! Commands of the leader, on its own account: what it found by judging nodes, zones, pods and workloads.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::addressing::Addressing;
use crate::object::node::{ConditionStatus, Incarnation};
use crate::object::pod::PodKey;
use crate::object::policy::Policy;
use crate::object::replica::ReplicaId;
use crate::object::workload::WorkloadKey;
use crate::value::level::Level;
use crate::value::meta::Uid;
use crate::value::text::Text;
use crate::value::time::ClusterTime;

/// How many nodes one entry takes back the evictions of.
pub const LIFTS_MAX: usize = 256;

/// When a node was last heard, and by which replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub at: ClusterTime,
    pub through: ReplicaId,
}

/// An operation that only the leader may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(LeaderOperationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`LeaderOperation`], without their data.")]
pub enum LeaderOperation {
    /// The leader has not heard the node within its grace: it can no longer vouch for its conditions (NH-8).
    MarkSilent {
        name: Text,
        incarnation: Incarnation,
        /// What the node's Ready condition said at the time of the decision.
        from: Option<ConditionStatus>,
        heard: Option<Sighting>,
        /// When the leader decided.
        decided: ClusterTime,
    },
    /// The leader gave up on watching a node because its actor keeps crashing. The reason is the crash in the words of
    /// the program: data.
    NoteQuarantine { name: Text, incarnation: Incarnation, reason: Text },
    /// Brings the zones' states and rates up to date with the nodes that are ready.
    AssessZones,
    /// Taints a node for eviction and takes its zone's token, in one step.
    EvictNode { name: Text, incarnation: Incarnation },
    /// While all zones are fully disrupted: takes back the evictions of these nodes.
    LiftEvictions { names: Vec<Text> },
    /// TE-8: the pod's time on its tainted node is over.
    EvictPod { key: PodKey, uid: Uid },
    /// GC-1 to GC-4: no agent will confirm that this pod has stopped, or no confirmation is needed.
    CollectPod { key: PodKey, uid: Uid },
    /// A node was found for a pod.
    BindPod { key: PodKey, uid: Uid, node: Text, incarnation: Incarnation },
    /// No node was found for a pod. `why` is the leader's sentence. It travels in the command, so that every replica
    /// stores the same bytes, whatever its build would say.
    NoteUnplaced { key: PodKey, uid: Uid, why: Text },
    /// Makes the pods that a workload lacks and deletes those it has too many of. For a DaemonSet, on these nodes.
    StaffWorkload { key: WorkloadKey, uid: Uid, nodes: Vec<Text> },
    /// The first leader of a new cluster proposes the policy of its flags.
    FoundPolicy { policy: Box<Policy> },
    /// The first leader with such flags proposes which addresses nodes get.
    FoundAddressing { plan: Box<Addressing> },
    /// Gives addresses to nodes that have none.
    AssignCidrs { names: Vec<Text> },
    /// No certificate for these names can be valid any more, and no Node has them.
    ForgetCredentials { names: Vec<Text> },
    /// Every replica has announced this level for a while. `version` is that of the leader.
    RaiseLevel { to: Level, version: Text },
}

impl LeaderOperationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl LeaderOperation {
    /// The Node that the operation is about, if it is about one.
    pub fn node_name(&self) -> Option<&str> {
        match self {
            Self::MarkSilent { name, .. } | Self::NoteQuarantine { name, .. } | Self::EvictNode { name, .. } => {
                Some(name)
            }
            Self::AssessZones
            | Self::LiftEvictions { .. }
            | Self::EvictPod { .. }
            | Self::CollectPod { .. }
            | Self::BindPod { .. }
            | Self::NoteUnplaced { .. }
            | Self::StaffWorkload { .. }
            | Self::FoundPolicy { .. }
            | Self::FoundAddressing { .. }
            | Self::AssignCidrs { .. }
            | Self::ForgetCredentials { .. }
            | Self::RaiseLevel { .. } => None,
        }
    }

    /// The level at which it came. Below it the operation must not enter the log.
    pub fn level(&self) -> Level {
        match self {
            Self::MarkSilent { .. }
            | Self::NoteQuarantine { .. }
            | Self::AssessZones
            | Self::EvictNode { .. }
            | Self::LiftEvictions { .. }
            | Self::EvictPod { .. }
            | Self::CollectPod { .. }
            | Self::BindPod { .. }
            | Self::NoteUnplaced { .. }
            | Self::StaffWorkload { .. }
            | Self::FoundPolicy { .. }
            | Self::FoundAddressing { .. }
            | Self::AssignCidrs { .. }
            | Self::ForgetCredentials { .. }
            | Self::RaiseLevel { .. } => Level::FIRST,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        LeaderOperationKind::from(self).into()
    }
}
