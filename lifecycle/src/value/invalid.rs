//! One field that breaks a rule: its path and the rule.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::text::Text;

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{field}: {rule}")]
pub struct Invalid {
    /// A path such as `spec.taints[1].key`.
    pub field: Text,
    /// The offending value and the rule it breaks, as in `"Node_1" is not a DNS-1123 subdomain: ...`.
    pub rule: Text,
}

impl Invalid {
    pub fn new(field: impl Into<Text>, rule: impl Into<Text>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}
