//! On which terms an agent is taken in: how often it beats, and whether it must report at once.

use muster_lifecycle::health::{NEVER_UPDATED, STATUS_UNKNOWN};
use muster_lifecycle::node::{ConditionStatus, Node};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state::State;
use muster_lifecycle::time::Period;
use muster_proto::v1;

/// The part of the policy that agents are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    beat_interval: Period,
    grace: Period,
}

// === impl Pace ===

impl Pace {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self { beat_interval: policy.beat_interval(), grace: policy.node_monitor_grace_period }
    }
}

/// As of `state`, whose revision orders them.
pub(crate) fn terms(state: &State) -> v1::Terms {
    let Pace { beat_interval, grace } = Pace::of(state.policy());
    v1::Terms {
        revision: state.revision().0,
        beat_interval_ms: millis(beat_interval),
        grace_ms: millis(grace),
        // Whoever lost its connection is back before it misses a second beat.
        backoff_cap_ms: millis(beat_interval),
    }
}

/// Whether what is known of the node is not its own word: nobody ever said it, or we took it back.
pub(crate) fn status_wanted(node: &Node) -> bool {
    node.status.ready().is_none_or(|ready| {
        let ours = ready.reason == NEVER_UPDATED || ready.reason == STATUS_UNKNOWN;
        ready.status == ConditionStatus::Unknown && ours
    })
}

fn millis(period: Period) -> u32 {
    u32::try_from(period.0).unwrap_or(u32::MAX)
}
