//! Commands of operators: nodes, pods, workloads, the policy, aggregators and join tokens.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::command::precondition::Precondition;
use crate::object::node::{NodeDraft, NodeStatus};
use crate::object::pod::{PodDraft, PodKey};
use crate::object::taint::{Taint, TaintSelector};
use crate::object::workload::{WorkloadDraft, WorkloadKey};
use crate::rehearsal;
use crate::value::fingerprint::Fingerprint;
use crate::value::level::Level;
use crate::value::meta::Uid;
use crate::value::text::Text;

/// An operation that operators ask for. No agent may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(OperatorOperationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`OperatorOperation`], without their data.")]
pub enum OperatorOperation {
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
    /// No certificate of this node is believed any more.
    RevokeNode {
        name: Text,
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
    /// Settings by name, in the form people write them.
    SetPolicy {
        changes: Vec<(Text, Text)>,
    },
    /// Without patterns the aggregator is forgotten.
    SetAggregator {
        name: Text,
        nodes: Vec<Text>,
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
    /// Raises the level in force to the highest one that all replicas speak, without waiting any longer. `version` is
    /// that of the replica that took the request.
    FinalizeUpgrade {
        version: Text,
    },
    /// The command of the rehearsal level.
    RehearseNote {
        aggregator: Text,
        note: Text,
    },
}

impl OperatorOperationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl OperatorOperation {
    /// The Node that the operation is about, if it is about one.
    pub fn node_name(&self) -> Option<&str> {
        match self {
            Self::CreateNode { draft, .. } | Self::ApplyNode { draft, .. } | Self::ReplaceNode { draft, .. } => {
                Some(&draft.name)
            }
            Self::ReplaceNodeStatus { name, .. }
            | Self::LabelNode { name, .. }
            | Self::AnnotateNode { name, .. }
            | Self::TaintNode { name, .. }
            | Self::CordonNode { name, .. }
            | Self::DeleteNode { name, .. }
            | Self::RevokeNode { name } => Some(name),
            Self::CreatePod { .. }
            | Self::ApplyPod { .. }
            | Self::DeletePod { .. }
            | Self::CreateWorkload { .. }
            | Self::ApplyWorkload { .. }
            | Self::DeleteWorkload { .. }
            | Self::SetPolicy { .. }
            | Self::SetAggregator { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::FinalizeUpgrade { .. }
            | Self::RehearseNote { .. } => None,
        }
    }

    /// The object that the operation is about, by name and, where it has one, namespace. The policy has no name.
    pub fn object_name(&self) -> Option<String> {
        if let Some(node) = self.node_name() {
            return Some(node.to_owned());
        }
        match self {
            Self::CreatePod { draft, .. } | Self::ApplyPod { draft, .. } => Some(draft.key.to_string()),
            Self::DeletePod { key, .. } => Some(key.to_string()),
            Self::CreateWorkload { draft, .. } | Self::ApplyWorkload { draft, .. } => Some(draft.key.to_string()),
            Self::DeleteWorkload { key, .. } => Some(key.to_string()),
            Self::SetAggregator { name, .. } => Some(name.to_string()),
            Self::RehearseNote { aggregator, .. } => Some(aggregator.to_string()),
            Self::CreateToken { id, .. } | Self::RevokeToken { id } => Some(id.to_string()),
            Self::SetPolicy { .. }
            | Self::FinalizeUpgrade { .. }
            | Self::CreateNode { .. }
            | Self::ApplyNode { .. }
            | Self::ReplaceNode { .. }
            | Self::ReplaceNodeStatus { .. }
            | Self::LabelNode { .. }
            | Self::AnnotateNode { .. }
            | Self::TaintNode { .. }
            | Self::CordonNode { .. }
            | Self::DeleteNode { .. }
            | Self::RevokeNode { .. } => None,
        }
    }

    /// The level at which it came. Below it the operation must not enter the log.
    pub fn level(&self) -> Level {
        match self {
            Self::CreateNode { .. }
            | Self::ApplyNode { .. }
            | Self::ReplaceNode { .. }
            | Self::ReplaceNodeStatus { .. }
            | Self::LabelNode { .. }
            | Self::AnnotateNode { .. }
            | Self::TaintNode { .. }
            | Self::CordonNode { .. }
            | Self::DeleteNode { .. }
            | Self::RevokeNode { .. }
            | Self::CreatePod { .. }
            | Self::ApplyPod { .. }
            | Self::DeletePod { .. }
            | Self::CreateWorkload { .. }
            | Self::ApplyWorkload { .. }
            | Self::DeleteWorkload { .. }
            | Self::SetPolicy { .. }
            | Self::SetAggregator { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::FinalizeUpgrade { .. } => Level::FIRST,
            Self::RehearseNote { .. } => rehearsal::LEVEL,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        OperatorOperationKind::from(self).into()
    }
}
