//! The level in force: what all replicas of the cluster agree to speak.

use serde::{Deserialize, Serialize};

use crate::object::record::Versioned;
use crate::value::level::Level;
use crate::value::text::Text;
use crate::value::time::Stamp;

/// The only record of its kind. Before the first raise it is the default, and is not stored. Its bytes never change:
/// a build of any level must be able to read which level is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LevelInForce {
    pub level: Level,
    /// The version of the build that raised it: one that can speak it. Empty before the first raise.
    pub raised_by: Text,
    pub raised_at: Stamp,
}

impl Versioned for LevelInForce {}

impl LevelInForce {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
