//! Tasks of a leader's clerks: which there are, what each finds to do, and which of them wait for evictions.
//!
//! The driver (the actors, a simulation) looks, proposes what it found, and looks again.

use crate::command::LeaderOperation;
use crate::judge::leader_view::LeaderView;
use crate::judge::spared::Spared;
use crate::judge::todo::{self, Todo};
use crate::state::State;
use crate::value::time::{ClusterTime, Period};

/// How many operations one proposal carries at most.
pub const OPERATIONS_MAX: usize = 2_048;

/// How many nodes get addresses in one entry.
const ASSIGNED_AT_ONCE: usize = 256;

/// How long one rush of evictions holds up the tasks that make up for them.
const RUSH_MAX: Period = Period::from_secs(10);

/// In the order in which a single worker would do them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClerkTask {
    TaintEviction,
    PodGc,
    Staffing,
    Placement,
    Ipam,
}

/// Evictions go first: successors of the pods of a lost zone are made and placed after its last pod was told to
/// leave, so that the deadline of the evictions is kept. The wait is bounded: where evictions do not end, the other
/// tasks go on beside them.
#[derive(Debug, Default)]
pub struct EvictionsFirst {
    /// When the rush began.
    since: Option<ClusterTime>,
}

// === impl ClerkTask ===

impl ClerkTask {
    pub const ALL: [Self; 5] = [Self::TaintEviction, Self::PodGc, Self::Staffing, Self::Placement, Self::Ipam];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaintEviction => "taint-eviction",
            Self::PodGc => "pod-gc",
            Self::Staffing => "staffing",
            Self::Placement => "placement",
            Self::Ipam => "ipam",
        }
    }

    /// What is to be done now. `spared` is what the clerk of this task remembers between two looks.
    pub fn look(self, state: &State, view: &LeaderView<'_>, spared: &mut Spared) -> Todo {
        match self {
            Self::TaintEviction => view.evictions(state, spared, OPERATIONS_MAX),
            Self::PodGc => {
                let pods = view.garbage(state, OPERATIONS_MAX - 1);
                pods.and(todo::expired_credentials(state, view.now))
            }
            Self::Staffing => todo::staffing(state, OPERATIONS_MAX),
            Self::Placement => view.placements(state, OPERATIONS_MAX),
            Self::Ipam => todo::cidr_assignments(state, view.now, ASSIGNED_AT_ONCE),
        }
    }

    /// The task makes up for evictions, and waits for their end.
    fn gives_way(self) -> bool {
        matches!(self, Self::Placement | Self::Staffing)
    }
}

impl std::fmt::Display for ClerkTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl EvictionsFirst ===

impl EvictionsFirst {
    /// Until when the task must wait, unless evictions end before.
    pub fn wait_until(&self, task: ClerkTask, now: ClusterTime) -> Option<ClusterTime> {
        let until = RUSH_MAX.after(self.since.filter(|_| task.gives_way())?);
        (now < until).then_some(until)
    }

    /// Notes what a task found. True if a rush of evictions has just ended, so that the other tasks may go on.
    pub fn found(&mut self, task: ClerkTask, operations: &[LeaderOperation], now: ClusterTime) -> bool {
        if task != ClerkTask::TaintEviction {
            return false;
        }
        let was_under_way = self.since.is_some();
        self.since = (!operations.is_empty()).then(|| self.since.unwrap_or(now));
        was_under_way && self.since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_delay_placement_until_they_end_or_for_ten_seconds() {
        let mut first = EvictionsFirst::default();
        let (evicting, waiting) = (ClerkTask::TaintEviction, ClerkTask::Placement);
        let is_taken = |first: &EvictionsFirst, at| first.wait_until(waiting, ClusterTime(at)).is_some();
        let some = [LeaderOperation::AssessZones];
        assert!(!is_taken(&first, 0));
        assert!(!first.found(evicting, &some, ClusterTime(0)));
        assert!(!first.found(evicting, &some, ClusterTime(9_000)));
        assert!(is_taken(&first, 9_999));
        assert_eq!(first.wait_until(ClerkTask::PodGc, ClusterTime(1)), None, "it does not make up for evictions");
        assert!(!first.found(ClerkTask::PodGc, &[], ClusterTime(9_999)), "nothing to collect is no end of evictions");
        assert!(!is_taken(&first, 10_000), "the rush began at 0, whatever came later");
        assert!(first.found(evicting, &[], ClusterTime(10_100)));
        first.found(evicting, &some, ClusterTime(10_200));
        assert!(is_taken(&first, 20_000), "this is another rush");
        first.found(evicting, &[], ClusterTime(20_100));
        assert!(!is_taken(&first, 20_100));
    }
}
