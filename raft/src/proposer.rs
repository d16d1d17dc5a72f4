//! From commands to log entries: gathers what is asked at the same time into one entry.
//!
//! A proposal waits for one of a few entries in flight; whatever arrives meanwhile rides in the next one.
//! So one client pays one round trip, and a storm of a hundred thousand registrations becomes hundreds of
//! entries. Only the leader's proposals are accepted: nothing is forwarded from here.

use std::sync::Arc;

use muster_lifecycle::command::{Batch, Command, Outcome};
use openraft::error::{ClientWriteError, ForwardToLeader};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::feed::Feed;
use crate::log_store::Capacity;
use crate::replica::Raft;
use crate::types::{ReplicaId, TypeConfig};

/// Commands waiting to be proposed. Beyond this the caller is told to come back later.
const QUEUE_MAX: usize = 16_384;
/// Commands in one log entry.
const BATCH_COMMANDS_MAX: usize = 512;
/// Approximate bytes of commands in one log entry.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Log entries proposed and not yet applied.
const IN_FLIGHT_MAX: usize = 4;

/// Why a command was not applied, or why nobody can say.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    #[error("this replica does not lead")]
    NotLeader { leader: Option<ReplicaId> },
    #[error("too many writes are waiting ({QUEUE_MAX}); try again in a moment")]
    Overloaded,
    /// The disk is nearly full, or the leader cannot take more.
    #[error("{0}")]
    Exhausted(String),
    #[error("leadership changed while the write was under way; it may or may not have happened")]
    Unknown,
    #[error("this replica is stopping")]
    Stopped,
}

/// What became of a command, and the log index where it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub outcome: Outcome,
    pub index: u64,
}

type Reply = oneshot::Sender<Result<Settled, ProposeError>>;

struct Proposal {
    command: Command,
    bytes: usize,
    reply: Reply,
}

/// A cheap handle; the work happens in one task.
#[derive(Clone)]
pub struct Proposer {
    queue: mpsc::Sender<Proposal>,
}

// === impl Proposer ===

impl Proposer {
    pub fn spawn(raft: Raft, feed: Arc<Feed>, capacity: Capacity) -> Self {
        let (queue, proposals) = mpsc::channel(QUEUE_MAX);
        let gatherer = Gatherer { raft, feed, capacity, proposals, in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)) };
        tokio::spawn(gatherer.run());
        Self { queue }
    }

    /// Proposes one command. Dropping the future does not take the command back.
    pub async fn propose(&self, command: Command) -> Result<Settled, ProposeError> {
        let (reply, settled) = oneshot::channel();
        let bytes = approximate_bytes(&command);
        self.queue.try_send(Proposal { command, bytes, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped,
        })?;
        settled.await.unwrap_or(Err(ProposeError::Unknown))
    }
}

fn approximate_bytes(command: &Command) -> usize {
    postcard::experimental::serialized_size(command).unwrap_or(BATCH_BYTES_MAX)
}

struct Gatherer {
    raft: Raft,
    feed: Arc<Feed>,
    capacity: Capacity,
    proposals: mpsc::Receiver<Proposal>,
    in_flight: Arc<Semaphore>,
}

// === impl Gatherer ===

impl Gatherer {
    async fn run(mut self) {
        while let Some(first) = self.proposals.recv().await {
            let Ok(permit) = Arc::clone(&self.in_flight).acquire_owned().await else { return };
            let gathered = self.gather(first);
            self.submit(gathered, permit).await;
        }
    }

    /// `first` and whatever else is waiting, up to one entry's worth.
    fn gather(&mut self, first: Proposal) -> Vec<Proposal> {
        let mut bytes = first.bytes;
        let mut gathered = vec![first];
        while gathered.len() < BATCH_COMMANDS_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(next) = self.proposals.try_recv() else { break };
            bytes += next.bytes;
            gathered.push(next);
        }
        gathered
    }

    async fn submit(&self, gathered: Vec<Proposal>, permit: OwnedSemaphorePermit) {
        let (commands, replies): (Vec<_>, Vec<_>) = gathered.into_iter().map(|p| (p.command, p.reply)).unzip();
        if let Err(full) = self.capacity.check() {
            return refuse(replies, &ProposeError::Exhausted(full.to_string()));
        }
        let batch = Batch { stamp: self.feed.stamp(), commands };
        let (responder, written) = ProgressResponder::complete_only();
        if self.raft.client_write_ff(batch, Some(responder)).await.is_err() {
            return refuse(replies, &ProposeError::Stopped);
        }
        tokio::spawn(async move {
            match written.await {
                Ok(result) => answer(replies, result),
                Err(_) => refuse(replies, &ProposeError::Unknown),
            }
            drop(permit);
        });
    }
}

fn answer(replies: Vec<Reply>, result: ClientWriteResult<TypeConfig>) {
    match result {
        Ok(written) => {
            let index = written.log_id.index;
            for (reply, outcome) in replies.into_iter().zip(written.data.0) {
                // A caller that went away no longer wants to know.
                let _ = reply.send(Ok(Settled { outcome, index }));
            }
        }
        Err(error) => refuse(replies, &propose_error(error)),
    }
}

fn propose_error(error: ClientWriteError<TypeConfig>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(ForwardToLeader { leader_id, .. }) => {
            ProposeError::NotLeader { leader: leader_id }
        }
        ClientWriteError::LogEntryDiscarded(_)
        | ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_) => ProposeError::Unknown,
    }
}

fn refuse(replies: Vec<Reply>, error: &ProposeError) {
    for reply in replies {
        let _ = reply.send(Err(error.clone()));
    }
}
