//! Proposer: gathers commands that are asked for at the same time into one log entry.
//!
//! A proposal waits for one of a few entries in flight; the proposals that arrive meanwhile go into the next one. So
//! one client pays one round trip, and a storm of a hundred thousand registrations becomes hundreds of entries. Only
//! the leader's proposals are accepted: nothing is forwarded from here.

use std::sync::Arc;

use muster_lifecycle::command::{Command, Outcome};
use muster_lifecycle::state::State;
use muster_lifecycle::upgrade;
use openraft::error::{ClientWriteError, ForwardToLeader};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::feed::Feed;
use crate::replica::Raft;
use crate::storage::log_store::LogCapacity;
use crate::storage::persisted::DecodeError;
use crate::types::TypeConfig;
use crate::write::encoded::{EncodedBatch, EncodedCommand};
use muster_lifecycle::replica::ReplicaId;

/// Commands waiting to be proposed. Beyond this the caller is told to come back later.
const QUEUE_MAX: usize = 16_384;
/// The most commands in one log entry; those that came together are not parted.
const BATCH_COMMANDS_MAX: usize = 512;
/// Bytes of commands in one log entry beyond which no more are added.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Log entries proposed and not yet applied.
const IN_FLIGHT_MAX: usize = 4;

/// The reason why a command was not applied, or why its outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    #[error("this replica does not lead")]
    NotLeader { leader: Option<ReplicaId> },
    #[error("too many writes are waiting ({QUEUE_MAX}); try again in a moment")]
    Overloaded,
    /// The disk is nearly full, or the leader cannot take more.
    #[error("{0}")]
    Exhausted(String),
    /// The command needs a level that is not in force.
    #[error("{0}")]
    AboveLevel(String),
    #[error("leadership changed while the write was under way; it may or may not have happened")]
    Unknown,
    #[error("this replica is stopping")]
    Stopped,
}

/// The outcome of a command, and the log index at which it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub outcome: Outcome,
    pub index: u64,
}

type Reply = oneshot::Sender<Result<Vec<Committed>, ProposeError>>;

/// Commands that came together; they go into one entry.
struct Proposal {
    drafts: Vec<EncodedCommand>,
    reply: Reply,
    /// Its share of the commands that may wait.
    _room: OwnedSemaphorePermit,
}

/// A cheap handle; the work happens in one task.
#[derive(Clone)]
pub struct Proposer {
    queue: mpsc::UnboundedSender<Proposal>,
    /// Bounds the commands that wait, and thereby the queue.
    room: Arc<Semaphore>,
    feed: Arc<Feed>,
}

/// Refuses a command that a member of the cluster could not read.
pub(crate) fn admit_level(state: &State, command: &Command) -> Result<(), ProposeError> {
    upgrade::admit(state, command.operation.level())
        .map_err(|rejection| ProposeError::AboveLevel(rejection.to_string()))
}

// === impl Proposer ===

impl Proposer {
    pub fn spawn(raft: Raft, feed: Arc<Feed>, capacity: LogCapacity) -> Self {
        let (queue, proposals) = mpsc::unbounded_channel();
        let gatherer = Gatherer {
            raft,
            feed: Arc::clone(&feed),
            capacity,
            proposals,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        };
        tokio::spawn(gatherer.run());
        Self { queue, room: Arc::new(Semaphore::new(QUEUE_MAX)), feed }
    }

    /// Proposes one command. Dropping the future does not take the command back.
    pub async fn propose(&self, command: Command) -> Result<Committed, ProposeError> {
        self.propose_draft(EncodedCommand::new(command).map_err(unencodable)?).await
    }

    pub(crate) async fn propose_draft(&self, draft: EncodedCommand) -> Result<Committed, ProposeError> {
        let committed = self.propose_all(vec![draft]).await?;
        committed.into_iter().next().ok_or(ProposeError::Unknown)
    }

    /// Proposes commands that came together, in one entry: one answer each, in their order, or one error for all. The
    /// caller bounds how many they are.
    pub(crate) async fn propose_all(&self, drafts: Vec<EncodedCommand>) -> Result<Vec<Committed>, ProposeError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let current = self.feed.current();
        drafts.iter().try_for_each(|draft| admit_level(&current.state, draft.command()))?;
        let (reply, committed) = oneshot::channel();
        let count = u32::try_from(drafts.len()).map_err(|_| ProposeError::Overloaded)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(count).map_err(|_| ProposeError::Overloaded)?;
        self.queue.send(Proposal { drafts, reply, _room: room }).map_err(|_| ProposeError::Stopped)?;
        committed.await.unwrap_or(Err(ProposeError::Unknown))
    }
}

/// The error for a command that cannot be encoded: it could not be written here or elsewhere. Commands consist of
/// encodable parts, so this does not occur.
pub(crate) fn unencodable(error: DecodeError) -> ProposeError {
    ProposeError::Exhausted(error.to_string())
}

struct Gatherer {
    raft: Raft,
    feed: Arc<Feed>,
    capacity: LogCapacity,
    proposals: mpsc::UnboundedReceiver<Proposal>,
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

    /// `first` and the other proposals that wait, up to one entry's worth.
    fn gather(&mut self, first: Proposal) -> Vec<Proposal> {
        let (mut count, mut bytes) = (first.drafts.len(), first.bytes());
        let mut gathered = vec![first];
        while count < BATCH_COMMANDS_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(next) = self.proposals.try_recv() else { break };
            count += next.drafts.len();
            bytes += next.bytes();
            gathered.push(next);
        }
        gathered
    }

    async fn submit(&self, gathered: Vec<Proposal>, permit: OwnedSemaphorePermit) {
        let (drafts, asked) = unravelled(gathered);
        if let Err(full) = self.capacity.check() {
            return refuse(asked, &ProposeError::Exhausted(full.to_string()));
        }
        let batch = match EncodedBatch::of(self.feed.current().state.level(), self.feed.stamp(), drafts) {
            Ok(batch) => batch,
            Err(error) => return refuse(asked, &unencodable(error)),
        };
        let (responder, written) = ProgressResponder::complete_only();
        if self.raft.client_write_ff(batch, Some(responder)).await.is_err() {
            return refuse(asked, &ProposeError::Stopped);
        }
        tokio::spawn(async move {
            match written.await {
                Ok(result) => answer(asked, result),
                Err(_) => refuse(asked, &ProposeError::Unknown),
            }
            drop(permit);
        });
    }
}

// === impl Proposal ===

impl Proposal {
    fn bytes(&self) -> usize {
        self.drafts.iter().map(|draft| draft.encoded().len()).sum()
    }
}

/// The number of commands asked for, and where to answer.
type Asked = (usize, Reply);

fn unravelled(gathered: Vec<Proposal>) -> (Vec<EncodedCommand>, Vec<Asked>) {
    let mut all = Vec::with_capacity(gathered.iter().map(|proposal| proposal.drafts.len()).sum());
    let mut asked = Vec::with_capacity(gathered.len());
    for Proposal { drafts, reply, .. } in gathered {
        asked.push((drafts.len(), reply));
        all.extend(drafts);
    }
    (all, asked)
}

fn answer(asked: Vec<Asked>, result: ClientWriteResult<TypeConfig>) {
    match result {
        Ok(written) => {
            let index = written.log_id.index;
            let mut committed = written.data.0.into_iter().map(|outcome| Committed { outcome, index });
            for (count, reply) in asked {
                // A caller that went away no longer wants to know.
                let _ = reply.send(Ok(committed.by_ref().take(count).collect()));
            }
        }
        Err(error) => refuse(asked, &propose_error(error)),
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

fn refuse(asked: Vec<Asked>, error: &ProposeError) {
    for (_, reply) in asked {
        let _ = reply.send(Err(error.clone()));
    }
}
