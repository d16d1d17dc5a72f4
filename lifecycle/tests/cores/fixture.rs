//! Helpers for moments and conditions.

use muster_lifecycle::node::{Condition, ConditionStatus};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};

/// A wall clock reading far from cluster time, so that mixing them up shows.
const WALL_AT_FOUNDING: i64 = 1_700_000_000_000;

pub(crate) fn at(seconds: u64) -> ClusterTime {
    ClusterTime(seconds * 1000)
}

pub(crate) fn stamp(cluster: ClusterTime) -> Stamp {
    Stamp { cluster, wall: WallTime(WALL_AT_FOUNDING + cluster.0 as i64) }
}

/// A condition as a kubelet posted it at the time zero.
pub(crate) fn condition(kind: &str, status: ConditionStatus) -> Condition {
    Condition {
        kind: Text::from(kind),
        status,
        last_heartbeat: Some(stamp(at(0))),
        last_transition: Some(stamp(at(0))),
        reason: Text::from("KubeletSaysSo"),
        message: Text::from("posted by the node"),
    }
}

/// `Ready=True DiskPressure=False`.
pub(crate) fn conditions(text: &str) -> Vec<Condition> {
    text.split_whitespace()
        .map(|word| word.split_once('=').expect("kind=status"))
        .map(|(kind, status)| condition(kind, status.parse().expect("a status")))
        .collect()
}
