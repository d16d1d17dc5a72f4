//! Subjects of events: what an event is about.

use serde::{Deserialize, Serialize};

use crate::value::meta::Uid;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// Kubernetes' word for the kind, or ours for what Kubernetes does not have: `Zone`, `Fleet`, `Policy`.
    pub kind: Text,
    pub name: Text,
    pub namespace: Option<Text>,
    pub uid: Uid,
}
