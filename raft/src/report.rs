//! Report of a replica on consensus at one moment: its term, the leader it follows, its log and its state.
//!
//! A reporter holds no part of the replica that keeps its store open, so one that was killed can start again while
//! its reporter is still there.

use std::sync::Arc;

use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::table::Digest;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver;
use openraft::{RaftMetrics, ServerState};

use crate::feed::Feed;
use crate::replica::Replica;
use crate::types::{LogId, TypeConfig};

/// A place in the log: the term in which the entry was proposed, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    pub term: u64,
    pub index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsensusReport {
    pub replica: ReplicaId,
    pub term: u64,
    /// The leader of that term, if this replica knows it.
    pub leader: Option<ReplicaId>,
    /// Whether this replica acts as the leader of that term.
    pub leads: bool,
    pub last_log_index: u64,
    /// The last entry of its own log that it knows to be committed.
    pub committed: Option<LogPlace>,
    /// The last entry applied, and the digest of the state after it.
    pub applied: Option<(LogPlace, Digest)>,
}

/// Makes reports of one running replica.
pub struct ConsensusReporter {
    metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    feed: Arc<Feed>,
}

impl Replica {
    pub fn reporter(&self) -> ConsensusReporter {
        ConsensusReporter { metrics: self.raft.metrics(), feed: Arc::clone(self.feed()) }
    }
}

// === impl ConsensusReporter ===

impl ConsensusReporter {
    /// The report of this moment. What was applied is read after the rest and may be ahead of it.
    pub fn report(&self) -> ConsensusReport {
        let metrics = self.metrics.borrow_watched().clone();
        let current = self.feed.current();
        ConsensusReport {
            replica: metrics.id,
            term: metrics.current_term,
            leader: metrics.current_leader,
            leads: metrics.state == ServerState::Leader,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            committed: metrics.local_committed.map(place),
            applied: current.applied.map(|id| (place(id), current.state.digest())),
        }
    }

    /// Waits until there may be something new to report. False when consensus has ended.
    pub async fn changed(&mut self) -> bool {
        self.metrics.changed().await.is_ok()
    }
}

fn place(id: LogId) -> LogPlace {
    LogPlace { term: id.leader_id.term, index: id.index }
}
