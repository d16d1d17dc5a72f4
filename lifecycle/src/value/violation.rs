//! Violations: which rule a value breaks, as a code with its parameters.
//!
//! A rejection is stored and travels between replicas, so it holds no sentence: replicas of two builds agree on the
//! code, and each makes the sentence where it is read. Parameters quote what a caller sent; the code that makes a
//! violation cuts them to a readable length. There is one file per group of rules.

mod access;
mod address;
mod name;
mod node;
mod pod;
mod setting;
mod value;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::access::{AccessViolation, AccessViolationKind};
pub use self::address::{AddressViolation, AddressViolationKind};
pub use self::name::{NameViolation, NameViolationKind};
pub use self::node::{NodeViolation, NodeViolationKind};
pub use self::pod::{PodViolation, PodViolationKind};
pub use self::setting::{SettingViolation, SettingViolationKind};
pub use self::value::{ValueViolation, ValueViolationKind};

/// The rule that a value breaks. New rules go last in their group, because their numbers are stored.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Violation {
    #[error(transparent)]
    Value(#[from] ValueViolation),
    #[error(transparent)]
    Name(#[from] NameViolation),
    #[error(transparent)]
    Setting(#[from] SettingViolation),
    #[error(transparent)]
    Address(#[from] AddressViolation),
    #[error(transparent)]
    Node(#[from] NodeViolation),
    #[error(transparent)]
    Pod(#[from] PodViolation),
    #[error(transparent)]
    Access(#[from] AccessViolation),
}
