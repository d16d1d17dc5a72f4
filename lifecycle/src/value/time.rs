//! The two kinds of time that enter the replicated state.
//!
//! *Cluster time* rides in commands and never jumps: every deadline is measured in it. *Wall time* is
//! what a person wants to read; it is stored beside cluster time and decides nothing.

use serde::{Deserialize, Serialize};

/// Milliseconds since the cluster was founded, as counted by its successive leaders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterTime(pub u64);

/// Milliseconds since the Unix epoch by some replica's wall clock. For display only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallTime(pub i64);

/// One moment, on both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    pub cluster: ClusterTime,
    pub wall: WallTime,
}
