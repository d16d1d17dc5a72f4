//! Rules for tokens, aggregators and credentials, and for what an agent may touch.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(AccessViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`AccessViolation`], without their parameters.")]
pub enum AccessViolation {
    #[error("{id:?} is not a token id: {length} characters of a-z and 0-9")]
    TokenId { id: Text, length: u64 },
    #[error("{ttl:?} is not between 1 minute and 30 days")]
    TokenLife { ttl: Duration },
    #[error("token {id} exists already; draw another")]
    TokenThere { id: Text },
    #[error("{count} patterns are too many: at most {most}")]
    TooManyPatterns { count: u64, most: u64 },
    #[error("{name:?} is not known and cannot be forgotten: name the nodes it may carry")]
    NoSuchAggregator { name: Text },
    #[error("asks for the key that the node has: a renewal needs a new one")]
    SameKey,
    #[error("{other:?} is not {own:?}: a node speaks for itself alone (NR-1)")]
    OtherNode { other: Text, own: Text },
    #[error("is not for a node's agent to set (NR-2)")]
    ConfigSource,
    #[error("is not for a node's agent to set (NR-3)")]
    NotOfAgents,
    #[error("is not for a node's agent to set (NR-4)")]
    LabelNotOfAgents,
    #[error("is not bound to node {node:?}: a node reports on its own pods alone (NR-5)")]
    OtherNodesPod { node: Text },
    #[error("aggregator {name:?} is not known")]
    UnknownAggregator { name: Text },
}

impl AccessViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
