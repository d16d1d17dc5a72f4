//! The pace that agents are given: how often they beat, and how long they may be silent.

use muster_lifecycle::policy::Policy;
use muster_lifecycle::state::State;
use muster_lifecycle::time::Period;
use muster_proto::v1;

/// The part of the policy that agents are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeatPace {
    beat_interval: Period,
    grace: Period,
}

// === impl BeatPace ===

impl BeatPace {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self { beat_interval: policy.beat_interval(), grace: policy.node_monitor_grace_period }
    }
}

/// The pace as of `state`, whose revision orders the messages.
pub(crate) fn terms(state: &State) -> v1::Terms {
    let BeatPace { beat_interval, grace } = BeatPace::of(state.policy());
    v1::Terms {
        revision: state.revision().0,
        beat_interval_ms: millis(beat_interval),
        grace_ms: millis(grace),
        // An agent that lost its connection is back before it misses a second beat.
        backoff_cap_ms: millis(beat_interval),
    }
}

fn millis(period: Period) -> u32 {
    u32::try_from(period.0).unwrap_or(u32::MAX)
}
