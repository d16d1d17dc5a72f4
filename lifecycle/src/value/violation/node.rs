//! Rules for Nodes: their metadata, taints and status. A taint is quoted in its own notation, `key=value:Effect`.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(NodeViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`NodeViolation`], without their parameters.")]
pub enum NodeViolation {
    #[error("taint {taint:?} not found")]
    NoSuchTaint { taint: Text },
    #[error("\"{taint}\" is already there; --overwrite changes its value")]
    TaintThere { taint: Text },
    #[error("\"{taint}\" is there twice: a key can have each effect once")]
    TaintRepeated { taint: Text },
    #[error("is {known:?} and cannot be changed or cleared once set")]
    ProviderIdFixed { known: Text },
    #[error("{finalizer:?} cannot be added: the node is being deleted")]
    LateFinalizer { finalizer: Text },
    #[error("only one owner can be the controller")]
    SecondController,
    #[error("{kind} {address:?} is there twice")]
    AddressRepeated { kind: Text, address: Text },
    #[error("{bytes} is not positive: leave it out on a machine without swap")]
    SwapNotPositive { bytes: i64 },
}

impl NodeViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
