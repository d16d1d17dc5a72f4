//! Commands: what may be asked of the replicated state, and what it answers.
//!
//! A log entry is a [`Batch`]: one stamp and the commands proposed together. Each command gets its own
//! [`Outcome`]; a [`Rejection`] is data, not an error of the machinery.

pub mod client;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::object::addressing::Addressing;
use crate::object::credential::SignedKey;
use crate::object::node::{ConditionStatus, Incarnation, NodeDraft, NodeStatus};
use crate::object::pod::{PodDraft, PodKey, PodReport};
use crate::object::policy::Policy;
use crate::object::replica::{ReplicaId, ReplicaRecord};
use crate::object::taint::{Taint, TaintSelector};
use crate::object::workload::{WorkloadDraft, WorkloadKey};
use crate::rejection::Rejection;
use crate::value::fingerprint::Fingerprint;
use crate::value::meta::{Revision, Uid};
use crate::value::text::Text;
use crate::value::time::{ClusterTime, Stamp};

/// How many nodes one entry takes back the evictions of.
pub const LIFTS_MAX: usize = 256;

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub stamp: Stamp,
    pub commands: Vec<Command>,
}

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub origin: Origin,
    pub request: Option<RequestId>,
    pub operation: Operation,
}

/// The writer of a command. A controller's proposals are bound to the term that made them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Operator {
        user: Text,
    },
    Controller {
        term: u64,
    },
    Replica {
        id: ReplicaId,
    },
    /// The node's own agent, or an aggregator that carries it.
    Node {
        name: Text,
    },
}

/// When a node was last heard, and by which replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub at: ClusterTime,
    pub through: ReplicaId,
}

/// Makes a retried write apply once. One client id belongs to one writer that numbers its requests
/// upwards and has at most one outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    pub client: u128,
    pub sequence: u64,
}

/// The object must still be the one the caller saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    pub revision: Option<Revision>,
    pub uid: Option<Uid>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Fails if the name is taken. `uid` is chosen by the proposer.
    CreateNode {
        draft: Box<NodeDraft>,
        uid: Uid,
    },
    /// Creates the Node, or changes exactly the parts the draft names (labels and annotations merge).
    ApplyNode {
        draft: Box<NodeDraft>,
        uid: Uid,
        precondition: Precondition,
    },
    /// Replaces everything but status (NV-9); parts the draft does not name return to their default.
    ReplaceNode {
        draft: Box<NodeDraft>,
        precondition: Precondition,
    },
    /// Replaces the status only (NV-9).
    ReplaceNodeStatus {
        name: Text,
        status: Box<NodeStatus>,
        precondition: Precondition,
    },
    /// `Some` sets, `None` removes. Without `overwrite`, changing an existing value is rejected.
    LabelNode {
        name: Text,
        changes: Vec<(Text, Option<Text>)>,
        overwrite: bool,
        precondition: Precondition,
    },
    AnnotateNode {
        name: Text,
        changes: Vec<(Text, Option<Text>)>,
        overwrite: bool,
        precondition: Precondition,
    },
    TaintNode {
        name: Text,
        add: Vec<Taint>,
        remove: Vec<TaintSelector>,
        overwrite: bool,
        precondition: Precondition,
    },
    CordonNode {
        name: Text,
        unschedulable: bool,
        precondition: Precondition,
    },
    DeleteNode {
        name: Text,
        precondition: Precondition,
    },
    /// A replica announces the store it runs on; a different store under a known id is rejected.
    AnnounceReplica {
        replica: ReplicaRecord,
    },
    /// A replica left the membership; its id is never used again.
    RetireReplica {
        id: ReplicaId,
    },
    /// An agent brings its node. One that exists keeps what operators decided (RG-4).
    RegisterNode {
        draft: Box<NodeDraft>,
        uid: Uid,
        running: Running,
    },
    /// An agent reports the status of its node. Heartbeat times alone change nothing.
    ReportStatus {
        name: Text,
        incarnation: Incarnation,
        status: Box<NodeStatus>,
        running: Running,
    },
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
    /// Brings the zones' states and rates up to date with the nodes that are ready.
    AssessZones,
    /// Taints a node for eviction and takes its zone's token, in one step.
    EvictNode {
        name: Text,
        incarnation: Incarnation,
    },
    /// While all zones are fully disrupted: takes back the evictions of these nodes.
    LiftEvictions {
        names: Vec<Text>,
    },
    /// The first leader of a new cluster proposes the policy of its flags.
    FoundPolicy {
        policy: Box<Policy>,
    },
    /// Settings by name, in the form people write them.
    SetPolicy {
        changes: Vec<(Text, Text)>,
    },
    /// Without patterns the aggregator is forgotten.
    SetAggregator {
        name: Text,
        nodes: Vec<Text>,
    },
    /// The leader gave up on watching a node because its actor keeps crashing.
    NoteQuarantine {
        name: Text,
        incarnation: Incarnation,
        reason: Text,
    },
    CreatePod {
        draft: Box<PodDraft>,
        uid: Uid,
    },
    /// Creates the pod, or changes those of its parts that can change.
    ApplyPod {
        draft: Box<PodDraft>,
        uid: Uid,
        precondition: Precondition,
    },
    /// `None` for the pod's own grace; with zero it is gone at once, whatever its node does.
    DeletePod {
        key: PodKey,
        grace: Option<u32>,
        precondition: Precondition,
    },
    CreateWorkload {
        draft: Box<WorkloadDraft>,
        uid: Uid,
    },
    ApplyWorkload {
        draft: Box<WorkloadDraft>,
        uid: Uid,
        precondition: Precondition,
    },
    /// The workload's pods go first.
    DeleteWorkload {
        key: WorkloadKey,
        precondition: Precondition,
    },
    /// An agent reports on the pods of its node.
    ReportPods {
        node: Text,
        incarnation: Incarnation,
        reports: Vec<PodReport>,
    },
    /// TE-8: the pod's time on its tainted node is over.
    EvictPod {
        key: PodKey,
        uid: Uid,
    },
    /// GC-1 to GC-4: no agent will confirm that this pod has stopped, or no confirmation is needed.
    CollectPod {
        key: PodKey,
        uid: Uid,
    },
    /// A node was found for a pod.
    BindPod {
        key: PodKey,
        uid: Uid,
        node: Text,
        incarnation: Incarnation,
    },
    /// No node was found for a pod.
    NoteUnplaced {
        key: PodKey,
        uid: Uid,
        why: Text,
    },
    /// Makes the pods that a workload lacks and deletes those it has too many of. For a DaemonSet, on these nodes.
    StaffWorkload {
        key: WorkloadKey,
        uid: Uid,
        nodes: Vec<Text>,
    },
    /// The first leader with such flags proposes which addresses nodes get.
    FoundAddressing {
        plan: Box<Addressing>,
    },
    /// Gives addresses to nodes that have none.
    AssignCidrs {
        names: Vec<Text>,
    },
    /// The caller draws the secret; the state knows only its hash.
    CreateToken {
        id: Text,
        hash: Fingerprint,
        node: Option<Text>,
        ttl_ms: u64,
    },
    RevokeToken {
        id: Text,
    },
    /// A machine joins: its token is used up, and its key is the node's from now on.
    EnrolNode {
        node: Text,
        token: Text,
        secret: Fingerprint,
        signed: SignedKey,
    },
    /// A node asks with the key it has, `from`, and gets a new one signed.
    RenewCredential {
        node: Text,
        from: Fingerprint,
        signed: SignedKey,
        late: bool,
    },
    /// A node came with its newest key.
    ConfirmCredential {
        node: Text,
        key: Fingerprint,
    },
    /// No certificate of this node is believed any more.
    RevokeNode {
        name: Text,
    },
    /// A machine was not let in under this node's name.
    NoteRefusal {
        node: Text,
        why: Text,
    },
    /// No certificate for these names can be valid any more, and no Node has them.
    ForgetCredentials {
        names: Vec<Text>,
    },
}

/// The pods that run on a node by its agent's word, by uid; `None` if it says nothing about them.
pub type Running = Option<Vec<Uid>>;

impl Operation {
    /// The Node that the operation is about, if it is about one.
    pub fn object_name(&self) -> Option<&str> {
        match self {
            Self::CreateNode { draft, .. }
            | Self::ApplyNode { draft, .. }
            | Self::ReplaceNode { draft, .. }
            | Self::RegisterNode { draft, .. } => Some(&draft.name),
            Self::ReplaceNodeStatus { name, .. }
            | Self::LabelNode { name, .. }
            | Self::AnnotateNode { name, .. }
            | Self::TaintNode { name, .. }
            | Self::CordonNode { name, .. }
            | Self::DeleteNode { name, .. }
            | Self::ReportStatus { name, .. }
            | Self::MarkSilent { name, .. }
            | Self::EvictNode { name, .. }
            | Self::NoteQuarantine { name, .. }
            | Self::RevokeNode { name }
            | Self::EnrolNode { node: name, .. }
            | Self::RenewCredential { node: name, .. }
            | Self::ConfirmCredential { node: name, .. }
            | Self::NoteRefusal { node: name, .. }
            | Self::ReportPods { node: name, .. } => Some(name),
            Self::AnnounceReplica { .. }
            | Self::RetireReplica { .. }
            | Self::AssessZones
            | Self::LiftEvictions { .. }
            | Self::FoundPolicy { .. }
            | Self::SetPolicy { .. }
            | Self::SetAggregator { .. }
            | Self::CreatePod { .. }
            | Self::ApplyPod { .. }
            | Self::DeletePod { .. }
            | Self::CreateWorkload { .. }
            | Self::ApplyWorkload { .. }
            | Self::DeleteWorkload { .. }
            | Self::EvictPod { .. }
            | Self::CollectPod { .. }
            | Self::BindPod { .. }
            | Self::NoteUnplaced { .. }
            | Self::StaffWorkload { .. }
            | Self::FoundAddressing { .. }
            | Self::AssignCidrs { .. }
            | Self::ForgetCredentials { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. } => None,
        }
    }
}

/// The origins that may ask for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entitled {
    Anyone,
    /// Only the leader, on its own account.
    Controller,
    /// Only the agent of the node that the operation is about.
    Agent,
}

impl Operation {
    pub fn entitled(&self) -> Entitled {
        match self {
            Self::MarkSilent { .. }
            | Self::AssessZones
            | Self::EvictNode { .. }
            | Self::LiftEvictions { .. }
            | Self::FoundPolicy { .. }
            | Self::NoteQuarantine { .. }
            | Self::EvictPod { .. }
            | Self::CollectPod { .. }
            | Self::BindPod { .. }
            | Self::NoteUnplaced { .. }
            | Self::StaffWorkload { .. }
            | Self::FoundAddressing { .. }
            | Self::AssignCidrs { .. }
            | Self::ForgetCredentials { .. } => Entitled::Controller,
            Self::RegisterNode { .. }
            | Self::ReportStatus { .. }
            | Self::ReportPods { .. }
            | Self::EnrolNode { .. }
            | Self::RenewCredential { .. }
            | Self::ConfirmCredential { .. }
            | Self::NoteRefusal { .. } => Entitled::Agent,
            Self::CreateNode { .. }
            | Self::ApplyNode { .. }
            | Self::ReplaceNode { .. }
            | Self::ReplaceNodeStatus { .. }
            | Self::LabelNode { .. }
            | Self::AnnotateNode { .. }
            | Self::TaintNode { .. }
            | Self::CordonNode { .. }
            | Self::DeleteNode { .. }
            | Self::AnnounceReplica { .. }
            | Self::RetireReplica { .. }
            | Self::SetPolicy { .. }
            | Self::SetAggregator { .. }
            | Self::CreatePod { .. }
            | Self::ApplyPod { .. }
            | Self::DeletePod { .. }
            | Self::CreateWorkload { .. }
            | Self::ApplyWorkload { .. }
            | Self::DeleteWorkload { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::RevokeNode { .. } => Entitled::Anyone,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        match self {
            Self::CreateNode { .. } => "create-node",
            Self::ApplyNode { .. } => "apply-node",
            Self::ReplaceNode { .. } => "replace-node",
            Self::ReplaceNodeStatus { .. } => "replace-node-status",
            Self::LabelNode { .. } => "label-node",
            Self::AnnotateNode { .. } => "annotate-node",
            Self::TaintNode { .. } => "taint-node",
            Self::CordonNode { .. } => "cordon-node",
            Self::DeleteNode { .. } => "delete-node",
            Self::AnnounceReplica { .. } => "announce-replica",
            Self::RetireReplica { .. } => "retire-replica",
            Self::RegisterNode { .. } => "register-node",
            Self::ReportStatus { .. } => "report-status",
            Self::MarkSilent { .. } => "mark-silent",
            Self::AssessZones => "assess-zones",
            Self::EvictNode { .. } => "evict-node",
            Self::LiftEvictions { .. } => "lift-evictions",
            Self::FoundPolicy { .. } => "found-policy",
            Self::SetPolicy { .. } => "set-policy",
            Self::SetAggregator { .. } => "set-aggregator",
            Self::NoteQuarantine { .. } => "note-quarantine",
            Self::CreatePod { .. } => "create-pod",
            Self::ApplyPod { .. } => "apply-pod",
            Self::DeletePod { .. } => "delete-pod",
            Self::CreateWorkload { .. } => "create-workload",
            Self::ApplyWorkload { .. } => "apply-workload",
            Self::DeleteWorkload { .. } => "delete-workload",
            Self::ReportPods { .. } => "report-pods",
            Self::EvictPod { .. } => "evict-pod",
            Self::CollectPod { .. } => "collect-pod",
            Self::BindPod { .. } => "bind-pod",
            Self::NoteUnplaced { .. } => "note-unplaced",
            Self::StaffWorkload { .. } => "staff-workload",
            Self::FoundAddressing { .. } => "found-addressing",
            Self::AssignCidrs { .. } => "assign-cidrs",
            Self::CreateToken { .. } => "create-token",
            Self::RevokeToken { .. } => "revoke-token",
            Self::EnrolNode { .. } => "enrol-node",
            Self::RenewCredential { .. } => "renew-credential",
            Self::ConfirmCredential { .. } => "confirm-credential",
            Self::RevokeNode { .. } => "revoke-node",
            Self::NoteRefusal { .. } => "note-refusal",
            Self::ForgetCredentials { .. } => "forget-credentials",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done(Receipt),
    Rejected(Rejection),
}

/// What a command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The revision of the object after the command; the state's revision if no object is concerned.
    pub revision: Revision,
    pub effect: ReceiptEffect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptEffect {
    Created,
    Changed,
    Unchanged,
    Deleted,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commands.len() {
            1 => f.write_str("1 command"),
            count => write!(f, "{count} commands"),
        }
    }
}

/// The origin in words for people: `alice`, `the controller`, `replica 2`, `its agent`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator { user } => fmt::Display::fmt(&Text::clipped(user, 128), f),
            Self::Controller { .. } => f.write_str("the controller"),
            Self::Replica { id } => write!(f, "replica {id}"),
            Self::Node { .. } => f.write_str("its agent"),
        }
    }
}
