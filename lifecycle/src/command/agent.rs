//! Commands of agents: a node joins, registers and reports.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::credential::{Distrust, SignedKey};
use crate::object::node::{Incarnation, NodeDraft, NodeStatus};
use crate::object::pod::PodReport;
use crate::value::fingerprint::Fingerprint;
use crate::value::level::Level;
use crate::value::meta::Uid;
use crate::value::text::Text;

/// The pods that run on a node by its agent's word, by uid; `None` if it says nothing about them.
pub type Running = Option<Vec<Uid>>;

/// An operation that only the agent of the node that it is about may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(AgentOperationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`AgentOperation`], without their data.")]
pub enum AgentOperation {
    /// An agent brings its node. One that exists keeps what operators decided (RG-4).
    RegisterNode { draft: Box<NodeDraft>, uid: Uid, running: Running },
    /// An agent reports the status of its node. Heartbeat times alone change nothing.
    ReportStatus { name: Text, incarnation: Incarnation, status: Box<NodeStatus>, running: Running },
    /// An agent reports on the pods of its node.
    ReportPods { node: Text, incarnation: Incarnation, reports: Vec<PodReport> },
    /// A machine joins: its token is used up, and its key is the node's from now on.
    EnrolNode { node: Text, token: Text, secret: Fingerprint, signed: SignedKey },
    /// A node asks with the key it has, `from`, and gets a new one signed.
    RenewCredential { node: Text, from: Fingerprint, signed: SignedKey, late: bool },
    /// A node came with its newest key.
    ConfirmCredential { node: Text, key: Fingerprint },
    /// A machine was not let in under this node's name.
    NoteRefusal { node: Text, remote: SocketAddr, why: Box<Distrust> },
}

impl AgentOperationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl AgentOperation {
    /// The Node that the operation is about.
    pub fn node_name(&self) -> &str {
        match self {
            Self::RegisterNode { draft, .. } => &draft.name,
            Self::ReportStatus { name, .. } => name,
            Self::ReportPods { node, .. }
            | Self::EnrolNode { node, .. }
            | Self::RenewCredential { node, .. }
            | Self::ConfirmCredential { node, .. }
            | Self::NoteRefusal { node, .. } => node,
        }
    }

    /// The level at which it came. Below it the operation must not enter the log.
    pub fn level(&self) -> Level {
        match self {
            Self::RegisterNode { .. }
            | Self::ReportStatus { .. }
            | Self::ReportPods { .. }
            | Self::EnrolNode { .. }
            | Self::RenewCredential { .. }
            | Self::ConfirmCredential { .. }
            | Self::NoteRefusal { .. } => Level::FIRST,
        }
    }

    /// The operation's name in metrics and messages.
    pub fn label(&self) -> &'static str {
        AgentOperationKind::from(self).into()
    }
}
