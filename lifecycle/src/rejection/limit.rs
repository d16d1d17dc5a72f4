//! Limits: what there may be no more of.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(LimitKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`Limit`], without their parameters.")]
pub enum Limit {
    Nodes,
    Pods,
    Workloads,
    Replicas,
    Aggregators,
    Credentials,
    OpenTokens,
    Settings,
    NodesPerEntry,
    NamesPerEntry,
    PodsPerReport,
    PodsOnNode { node: Text },
    NodeBytes { name: Text, bytes: u64, heaviest: NodePart },
    PodBytes { name: Text, bytes: u64 },
    WorkloadBytes { name: Text, bytes: u64 },
    ReasonBytes,
}

/// A part of a Node that may be heavy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodePart {
    Labels,
    Annotations,
    Owners,
    Finalizers,
    Spec,
    Status,
    Unmodelled,
}

// === impl Limit ===

impl LimitKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("nodes"),
            Self::Pods => f.write_str("pods"),
            Self::Workloads => f.write_str("workloads"),
            Self::Replicas => f.write_str("replicas"),
            Self::Aggregators => f.write_str("aggregators"),
            Self::Credentials => f.write_str("credentials"),
            Self::OpenTokens => f.write_str("open join tokens"),
            Self::Settings => f.write_str("settings"),
            Self::NodesPerEntry => f.write_str("nodes in one entry"),
            Self::NamesPerEntry => f.write_str("names in one entry"),
            Self::PodsPerReport => f.write_str("pods in one report"),
            Self::PodsOnNode { node } => write!(f, "pods on node {node:?}"),
            Self::NodeBytes { name, bytes, heaviest } => {
                write!(f, "bytes of node {name:?}: it would have {bytes}, most of them in {heaviest}")
            }
            Self::PodBytes { name, bytes } => write!(f, "bytes of pod {name:?}: it would have {bytes}"),
            Self::WorkloadBytes { name, bytes } => write!(f, "bytes of workload {name:?}: it would have {bytes}"),
            Self::ReasonBytes => f.write_str("bytes of a reason"),
        }
    }
}

// === impl NodePart ===

impl fmt::Display for NodePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Labels => "metadata.labels",
            Self::Annotations => "metadata.annotations",
            Self::Owners => "metadata.ownerReferences",
            Self::Finalizers => "metadata.finalizers",
            Self::Spec => "spec",
            Self::Status => "status",
            Self::Unmodelled => "fields kept as given",
        })
    }
}
