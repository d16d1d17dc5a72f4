//! What governs the whole fleet: the policy in force, and whether every zone is dark.

use serde::{Deserialize, Serialize};

use crate::policy::{Period, Policy};
use crate::time::ClusterTime;

/// The one record of it. Until somebody says otherwise it is the default, and is not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Regime {
    pub policy: Policy,
    /// The policy was decided in this cluster: what a replica's flags say no longer matters.
    pub founded: bool,
    /// Every zone is fully disrupted: nothing is evicted, and what was begun is taken back.
    pub all_dark: bool,
    /// When the last such time ended: every node's grace starts anew from there.
    pub grace_from: Option<ClusterTime>,
}

impl Regime {
    /// Until when nobody may be judged or evicted because all zones were dark until a moment ago.
    pub fn spared_until(&self) -> Option<ClusterTime> {
        self.grace_from.map(|from| self.policy.node_monitor_grace_period.after(from))
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The reprieve in the form that evidence takes.
    pub fn reprieve(&self) -> Option<(ClusterTime, Period)> {
        self.grace_from.map(|from| (from, self.policy.node_monitor_grace_period))
    }
}
