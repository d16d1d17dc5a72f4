//! One field that breaks a rule: its path and the rule.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::text::Text;
use crate::value::violation::Violation;

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{field}: {rule}")]
pub struct Invalid {
    /// A path such as `spec.taints[1].key`, in Kubernetes' words or those of a command. It names a place and is data.
    pub field: Text,
    /// The rule and the value that breaks it, as in `"Node_1" is not a DNS-1123 subdomain: ...`.
    pub rule: Violation,
}

impl Invalid {
    pub fn new(field: impl Into<Text>, rule: impl Into<Violation>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}
