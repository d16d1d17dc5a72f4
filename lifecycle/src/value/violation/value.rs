//! Rules for single values, whatever they are part of.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::quantity::Quantity;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(ValueViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`ValueViolation`], without their parameters.")]
pub enum ValueViolation {
    #[error("must not be empty")]
    Empty,
    #[error("{count} are too many: at most {most}")]
    TooMany { count: u64, most: u64 },
    #[error("{bytes} bytes are too many: at most {most}")]
    TooManyBytes { bytes: u64, most: u64 },
    #[error("{given} is not between {least} and {most}")]
    NotBetween { given: i64, least: i64, most: i64 },
    #[error("\"{given}\" is negative")]
    Negative { given: Quantity },
    #[error("\"{given}\" is not a whole number")]
    NotWhole { given: Quantity },
    #[error("{key:?} is there twice")]
    Repeated { key: Text },
    #[error("{key:?} is named twice in one command")]
    NamedTwice { key: Text },
    #[error("{key:?} already has the value {known:?}; --overwrite changes it")]
    HasOtherValue { key: Text, known: Text },
    #[error("{key:?} is reserved")]
    Reserved { key: Text },
}

impl ValueViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
