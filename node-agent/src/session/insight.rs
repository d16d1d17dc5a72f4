//! What can be asked of a session at any moment. That it answers shows that it lives.

use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::pods::PodInsight;

pub(super) type Inquiry = oneshot::Sender<Insight>;

#[derive(Debug, Clone)]
pub struct Insight {
    /// The endpoint that this node is attached to.
    pub door: Option<String>,
    pub vitals: Vitals,
    pub pods: Vec<PodInsight>,
}

/// What was said and heard, and when last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vitals {
    pub beats: u64,
    pub statuses: u64,
    /// Attempts to attach that were in vain, and connections that were lost.
    pub failures: u64,
    /// Whatever is said counts as a beat.
    pub beat_at: Option<Instant>,
    pub heard_at: Option<Instant>,
    /// When a replica in contact with the leader last said that it heard this node.
    pub acknowledged_at: Option<Instant>,
}

// === impl Vitals ===

impl Vitals {
    pub(super) fn said(&mut self, message: &v1::AgentMessage, now: Instant) {
        match message.message {
            Some(Up::Beat(_)) => self.beats += 1,
            Some(Up::Status(_)) => self.statuses += 1,
            // About something else than how the node is.
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
