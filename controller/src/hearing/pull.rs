//! A pull of one peer's table, a few times a second.
//!
//! To the nodes last heard through that peer every failure is the same: its digest is missing, which excuses them. The
//! log reports it once per outage, not four times a second. A full table that comes slowly is not given up, but until
//! it is complete the digest counts as missing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::pulse_client::PulseClient;
use muster_pulse::digest::{DigestRequest, PART_MAX};
use muster_pulse::inbox::{DigestInbox, InboxError, Progress, ROUND_TRIP_MAX};
use muster_pulse::tick::Tick;
use muster_raft::peers::Lane;
use muster_raft::replica::Replica;
use thiserror::Error;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::hearing::Hearing;
use crate::observe::metrics::Metrics;
use crate::observe::metrics::pulse::PullOutcome;

const PULL_PERIOD: Duration = Duration::from_millis(250);

/// A peer whose digest has been missing this long is not waited for any more.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);

/// The size of a part, and of the other fields of its message.
pub(crate) const PART_MESSAGE_MAX: usize = PART_MAX + 1024;

/// Pulls from one peer until it is dropped.
pub(super) struct Pull {
    hearing: Hearing,
    replica: Replica,
    metrics: Arc<Metrics>,
    peer: ReplicaId,
    inbox: DigestInbox,
    /// Since when the peer's digest is missing.
    missing: Option<Tick>,
    /// Bytes of the digest under way.
    received: u64,
}

#[derive(Debug, Error)]
enum Missed {
    #[error("it is not a member any more")]
    NotMember,
    #[error("it, or the next part of it, did not come in time")]
    Late,
    #[error("{0}")]
    Refused(#[from] Box<tonic::Status>),
    #[error(transparent)]
    Unusable(#[from] InboxError),
    #[error("the digest ended early")]
    CutShort,
}

// === impl Pull ===

impl Pull {
    pub(super) fn new(
        hearing: Hearing,
        replica: Replica,
        metrics: Arc<Metrics>,
        inbox: DigestInbox,
        peer: ReplicaId,
    ) -> Self {
        Self { hearing, replica, metrics, peer, inbox, missing: None, received: 0 }
    }

    pub(super) async fn run(mut self) {
        let mut turns = interval(PULL_PERIOD);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let (asked_at, life) = (self.hearing.tick(), self.inbox.boot());
        let request = self.inbox.ask(asked_at);
        self.received = 0;
        let pulled = self.pull(request, asked_at).await;
        let took = self.hearing.tick().elapsed_since(asked_at);
        self.metrics.pulse.pulled(self.peer, outcome(&pulled), took, self.received);
        match pulled {
            Ok(()) => {
                // A peer that restarted between two pulls dropped its agents, although no pull failed.
                if life.is_some() && life != self.inbox.boot() {
                    self.hearing.pulses().blindness().digest_missed(self.peer, asked_at);
                }
                self.complete();
            }
            Err(missed) => self.miss(&missed),
        }
    }

    async fn pull(&mut self, request: DigestRequest, asked_at: Tick) -> Result<(), Missed> {
        let reached = self.replica.peer_channel(self.peer, Lane::Pulse);
        let (channel, greeting) = reached.ok_or(Missed::NotMember)?;
        let mut client = PulseClient::new(channel).max_decoding_message_size(PART_MESSAGE_MAX);
        let asking = client.pull(on_the_wire(request, greeting));
        let mut parts = within(self.patience(), asking).await?.into_inner();
        let mut progress = Progress::Partial;
        while let Some(part) = within(self.patience(), parts.message()).await? {
            self.received += part.data.len() as u64;
            progress = self.inbox.receive(&part.data, self.hearing.tick())?;
            if let Some(wellbeing) = part.wellbeing {
                self.take(wellbeing);
            }
            if progress == Progress::Partial {
                self.note_if_slow(asked_at);
            }
        }
        if progress == Progress::Complete { Ok(()) } else { Err(Missed::CutShort) }
    }

    fn patience(&self) -> Duration {
        self.inbox.patience(self.hearing.tick())
    }

    /// A digest that takes longer than a round trip counts as missing until it is complete.
    fn note_if_slow(&self, asked_at: Tick) {
        let now = self.hearing.tick();
        if now.elapsed_since(asked_at) > ROUND_TRIP_MAX {
            self.hearing.pulses().blindness().digest_missed(self.peer, now);
        }
    }

    fn take(&self, wellbeing: v1::Wellbeing) {
        let now = self.hearing.tick();
        self.hearing.canary(self.peer, wellbeing.canary_late, now);
        if wellbeing.handshakes_queued {
            self.hearing.handshakes_queued(now);
        }
    }

    fn complete(&mut self) {
        let now = self.hearing.tick();
        self.hearing.pulses().blindness().digest_complete(self.peer, now);
        if let Some(since) = self.missing.take() {
            tracing::info!(replica = %self.peer, missing = ?now.elapsed_since(since), "heard through a replica again");
        }
    }

    fn miss(&mut self, missed: &Missed) {
        let now = self.hearing.tick();
        if missed.breaks_the_stream() {
            self.inbox.restart();
        }
        if self.missing.is_none() {
            tracing::warn!(replica = %self.peer, reason = %missed, "what a replica heard is missing");
        }
        let since = *self.missing.get_or_insert(now);
        let mut blindness = self.hearing.pulses().blindness();
        if now.elapsed_since(since) > UNREACHABLE_AFTER {
            blindness.unreachable(self.peer, now);
        } else {
            blindness.digest_missed(self.peer, now);
        }
    }
}

// === impl Missed ===

impl Missed {
    /// Whether the next digest cannot build on the last. A digest that merely came too late leaves both sides as they
    /// were, and the inbox detects any other case.
    fn breaks_the_stream(&self) -> bool {
        match self {
            Self::NotMember | Self::Late | Self::Unusable(InboxError::Late { .. }) => false,
            Self::Refused(_) | Self::Unusable(_) | Self::CutShort => true,
        }
    }
}

async fn within<T>(patience: Duration, answer: impl Future<Output = Result<T, tonic::Status>>) -> Result<T, Missed> {
    let answered = timeout(patience, answer).await.map_err(|_| Missed::Late)?;
    Ok(answered.map_err(Box::new)?)
}

fn outcome(pulled: &Result<(), Missed>) -> PullOutcome {
    match pulled {
        Ok(()) => PullOutcome::Merged,
        Err(Missed::Late | Missed::Unusable(InboxError::Late { .. })) => PullOutcome::Late,
        Err(Missed::Unusable(_)) => PullOutcome::Refused,
        Err(Missed::NotMember | Missed::Refused(_) | Missed::CutShort) => PullOutcome::Failed,
    }
}

fn on_the_wire(request: DigestRequest, greeting: v1::Greeting) -> v1::PullRequest {
    let name =
        |applied: muster_pulse::digest::DigestId| v1::DigestName { boot: applied.boot.0, sequence: applied.sequence };
    v1::PullRequest { greeting: Some(greeting), asked: request.asked, applied: request.applied.map(name) }
}
