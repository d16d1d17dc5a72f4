//! Placement refusals: why a node does not take a pod.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::value::text::Text;

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(PlacementRefusalKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`PlacementRefusal`], without their parameters.")]
pub enum PlacementRefusal {
    Unreachable,
    NotReady,
    /// Silent for longer than it should be, and not judged yet.
    Unheard,
    Deleted,
    Cordoned,
    Taint(Text),
    Selector,
    Short(Shortage),
}

/// The resource of a node that is used up first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Shortage {
    Resource(Text),
    Pods,
}

// === impl PlacementRefusal ===

impl PlacementRefusalKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl fmt::Display for PlacementRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("unreachable"),
            Self::NotReady => f.write_str("not ready"),
            Self::Unheard => f.write_str("not heard of late"),
            Self::Deleted => f.write_str("being deleted"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::Taint(key) => write!(f, "with taint {key}"),
            Self::Selector => f.write_str("not selected"),
            Self::Short(Shortage::Resource(name)) => write!(f, "insufficient {name}"),
            Self::Short(Shortage::Pods) => f.write_str("too many pods"),
        }
    }
}
