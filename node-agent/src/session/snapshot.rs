//! Snapshot of a session, taken on request. An answer also shows that the session's task lives.

use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::pods::PodSnapshot;

pub(super) type SnapshotRequest = oneshot::Sender<SessionSnapshot>;

#[derive(Debug, Clone)]
pub struct SessionSnapshot {
    /// The endpoint that this node is attached to.
    pub endpoint: Option<String>,
    pub counters: SessionCounters,
    pub pods: Vec<PodSnapshot>,
}

/// Counters of sent messages and failures, and the time of the last message in each direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionCounters {
    pub beats: u64,
    pub statuses: u64,
    /// Failed attempts to attach, and lost connections.
    pub failures: u64,
    /// Every status counts as a beat.
    pub beat_at: Option<Instant>,
    pub heard_at: Option<Instant>,
    /// When a replica in contact with the leader last acknowledged this node.
    pub acknowledged_at: Option<Instant>,
}

// === impl SessionCounters ===

impl SessionCounters {
    pub(super) fn said(&mut self, message: &v1::AgentMessage, now: Instant) {
        match message.message {
            Some(Up::Beat(_)) => self.beats += 1,
            Some(Up::Status(_)) => self.statuses += 1,
            // These do not report the node's health.
            Some(Up::Hello(_) | Up::Register(_) | Up::Pods(_) | Up::Goodbye(_)) | None => return,
        }
        self.beat_at = Some(now);
    }

    pub(super) fn heard(&mut self, message: &v1::ServerMessage, now: Instant) {
        self.heard_at = Some(now);
        if let Some(Down::Acknowledged(_)) = &message.message {
            self.acknowledged_at = Some(now);
        }
    }
}
