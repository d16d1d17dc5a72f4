//! Proposer: gathers commands that are asked for at the same time into one log entry.
//!
//! A proposal waits for one of a few entries in flight; the proposals that arrive meanwhile go into the next one. So
//! one client pays one round trip, and a storm of a hundred thousand registrations becomes hundreds of entries. Only
//! the leader's proposals are accepted: nothing is forwarded from here.
//!
//! The leader itself, operators and agents each have a queue with its own room, and entries take from all three in
//! turn. So a zone's worth of verdicts does not turn operators away, nor does a storm of registrations.

use std::fmt;
use std::sync::Arc;

use muster_lifecycle::command::{Command, Origin, Outcome};
use openraft::error::{ClientWriteError, ForwardToLeader};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::feed::Feed;
use crate::membership::fitness::Fitness;
use crate::replica::Raft;
use crate::storage::log_store::LogCapacity;
use crate::storage::persisted::DecodeError;
use crate::types::TypeConfig;
use crate::write::encoded::{EncodedBatch, EncodedCommand};
use muster_lifecycle::replica::ReplicaId;

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
    /// Nothing happened, and there may be room in a moment.
    #[error("{0}")]
    Overloaded(String),
    /// The leader's disk is nearly full, and another replica is about to lead. Nothing happened.
    #[error("{0}")]
    HandingOver(String),
    /// The leader's disk is nearly full, and no other replica can take over.
    #[error("{0}")]
    Exhausted(String),
    #[error("leadership changed while the write was under way; it may or may not have happened")]
    Unknown,
    #[error("this replica is stopping")]
    Stopped,
}

/// The writers that share the log, each with room of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriterClass {
    /// The leader's own judgement, and replicas about replicas.
    Leader,
    Operators,
    Agents,
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
    leader: WayIn,
    operators: WayIn,
    agents: WayIn,
}

/// The end of a queue at which one class of writers asks.
#[derive(Clone)]
struct WayIn {
    class: WriterClass,
    proposals: mpsc::UnboundedSender<Proposal>,
    /// Bounds the commands that wait, and thereby the queue.
    room: Arc<Semaphore>,
}

/// The other ends.
struct Queues {
    leader: mpsc::UnboundedReceiver<Proposal>,
    operators: mpsc::UnboundedReceiver<Proposal>,
    agents: mpsc::UnboundedReceiver<Proposal>,
}

// === impl WriterClass ===

impl WriterClass {
    /// The class that a command belongs to.
    pub fn of(command: &Command) -> Self {
        match command.origin {
            Origin::Controller { .. } | Origin::Replica { .. } => Self::Leader,
            Origin::Operator { .. } => Self::Operators,
            Origin::Node { .. } => Self::Agents,
        }
    }

    /// The error for a caller that finds no room.
    pub(crate) fn overloaded(self) -> ProposeError {
        let text = format!("too many writes of {self} are waiting ({}); try again in a moment", self.room());
        ProposeError::Overloaded(text)
    }

    /// How many commands may wait to be proposed. Beyond this the caller is told to come back later.
    pub const fn room(self) -> usize {
        match self {
            Self::Leader | Self::Agents => 16_384,
            Self::Operators => 4_096,
        }
    }
}

impl fmt::Display for WriterClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "the leader",
            Self::Operators => "operators",
            Self::Agents => "agents",
        })
    }
}

// === impl Proposer ===

impl Proposer {
    pub(crate) fn spawn(raft: Raft, feed: Arc<Feed>, capacity: LogCapacity, fitness: Arc<Fitness>) -> Self {
        let (proposer, queues) = Self::new();
        let gatherer =
            Gatherer { raft, feed, capacity, fitness, queues, in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)) };
        tokio::spawn(gatherer.run());
        proposer
    }

    fn new() -> (Self, Queues) {
        let (leader, from_leader) = WayIn::new(WriterClass::Leader);
        let (operators, from_operators) = WayIn::new(WriterClass::Operators);
        let (agents, from_agents) = WayIn::new(WriterClass::Agents);
        let queues = Queues { leader: from_leader, operators: from_operators, agents: from_agents };
        (Self { leader, operators, agents }, queues)
    }

    /// Proposes one command. Dropping the future does not take the command back.
    pub async fn propose(&self, command: Command) -> Result<Committed, ProposeError> {
        self.propose_draft(EncodedCommand::new(command).map_err(unencodable)?).await
    }

    pub(crate) async fn propose_draft(&self, draft: EncodedCommand) -> Result<Committed, ProposeError> {
        let committed = self.propose_all(vec![draft]).await?;
        committed.into_iter().next().ok_or(ProposeError::Unknown)
    }

    /// Proposes commands of one class that came together, in one entry: one answer each, in their order, or one error
    /// for all. The caller bounds how many they are. The class is that of the first.
    pub(crate) async fn propose_all(&self, drafts: Vec<EncodedCommand>) -> Result<Vec<Committed>, ProposeError> {
        let Some(first) = drafts.first() else { return Ok(Vec::new()) };
        let way_in = match WriterClass::of(first.command()) {
            WriterClass::Leader => &self.leader,
            WriterClass::Operators => &self.operators,
            WriterClass::Agents => &self.agents,
        };
        let committed = way_in.enter(drafts)?;
        committed.await.unwrap_or(Err(ProposeError::Unknown))
    }
}

// === impl WayIn ===

impl WayIn {
    fn new(class: WriterClass) -> (Self, mpsc::UnboundedReceiver<Proposal>) {
        let (proposals, taken) = mpsc::unbounded_channel();
        (Self { class, proposals, room: Arc::new(Semaphore::new(class.room())) }, taken)
    }

    fn enter(
        &self,
        drafts: Vec<EncodedCommand>,
    ) -> Result<oneshot::Receiver<Result<Vec<Committed>, ProposeError>>, ProposeError> {
        let count = u32::try_from(drafts.len()).map_err(|_| self.class.overloaded())?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(count).map_err(|_| self.class.overloaded())?;
        let (reply, committed) = oneshot::channel();
        self.proposals.send(Proposal { drafts, reply, _room: room }).map_err(|_| ProposeError::Stopped)?;
        Ok(committed)
    }
}

// === impl Queues ===

impl Queues {
    /// The next proposal of any class; `None` when no handle is left.
    async fn next(&mut self) -> Option<Proposal> {
        tokio::select! {
            Some(proposal) = self.leader.recv() => Some(proposal),
            Some(proposal) = self.operators.recv() => Some(proposal),
            Some(proposal) = self.agents.recv() => Some(proposal),
            else => None,
        }
    }

    /// `first` and the other proposals that wait, up to one entry's worth, one of each class in turn.
    fn gather(&mut self, first: Proposal) -> Vec<Proposal> {
        let (mut count, mut bytes) = (first.drafts.len(), first.bytes());
        let mut gathered = vec![first];
        let mut classes = vec![&mut self.operators, &mut self.agents, &mut self.leader];
        while !classes.is_empty() {
            classes.retain_mut(|class| {
                let Ok(next) = class.try_recv() else { return false };
                count += next.drafts.len();
                bytes += next.bytes();
                gathered.push(next);
                true
            });
            if count >= BATCH_COMMANDS_MAX || bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        gathered
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
    fitness: Arc<Fitness>,
    queues: Queues,
    in_flight: Arc<Semaphore>,
}

// === impl Gatherer ===

impl Gatherer {
    async fn run(mut self) {
        while let Some(first) = self.queues.next().await {
            let Ok(permit) = Arc::clone(&self.in_flight).acquire_owned().await else { return };
            let gathered = self.queues.gather(first);
            self.submit(gathered, permit).await;
        }
    }

    async fn submit(&self, gathered: Vec<Proposal>, permit: OwnedSemaphorePermit) {
        let (drafts, asked) = unravelled(gathered);
        if let Err(full) = self.capacity.check() {
            return refuse(asked, &self.without_room(full.to_string()));
        }
        let batch = match EncodedBatch::of(self.feed.stamp(), drafts) {
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

    /// Until it is known that no other replica can take over, the caller may hope for the next leader.
    fn without_room(&self, full: String) -> ProposeError {
        if self.fitness.is_without_successor() {
            ProposeError::Exhausted(full)
        } else {
            ProposeError::HandingOver(format!("{full}; another replica is about to lead, try again in a moment"))
        }
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

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::{LeaderOperation, OperatorOperation};

    use super::*;

    #[test]
    fn verdicts_that_fill_their_room_leave_room_for_operators_and_agents() {
        let (proposer, _queues) = Proposer::new();
        let verdicts = vec![draft(Origin::Controller { term: 1 }); WriterClass::Leader.room()];
        proposer.leader.enter(verdicts).unwrap();
        for (way_in, origin) in [
            (&proposer.operators, Origin::Operator { user: "ada".into() }),
            (&proposer.agents, Origin::Node { name: "a".into() }),
        ] {
            let asked = way_in.enter(vec![draft(origin)]);
            assert!(asked.is_ok(), "{} found no room", way_in.class);
        }
        let one_more = proposer.leader.enter(vec![draft(Origin::Controller { term: 1 })]).unwrap_err();
        assert!(matches!(one_more, ProposeError::Overloaded(_)), "{one_more:?}");
        assert!(one_more.to_string().contains("writes of the leader are waiting (16384); try again"), "{one_more}");
    }

    #[tokio::test]
    async fn an_entry_takes_from_every_class_in_turn() {
        let (proposer, mut queues) = Proposer::new();
        let origins = [Origin::Controller { term: 1 }, Origin::Node { name: "a".into() }];
        for _ in 0..2 * BATCH_COMMANDS_MAX {
            proposer.leader.enter(vec![draft(origins[0].clone())]).unwrap();
            proposer.agents.enter(vec![draft(origins[1].clone())]).unwrap();
        }
        proposer.operators.enter(vec![draft(Origin::Operator { user: "ada".into() })]).unwrap();
        let first = queues.next().await.unwrap();
        let gathered = queues.gather(first);
        let of = |class| gathered.iter().filter(|one| WriterClass::of(one.drafts[0].command()) == class).count();
        assert_eq!(of(WriterClass::Operators), 1);
        assert!(of(WriterClass::Leader).abs_diff(of(WriterClass::Agents)) <= 2);
        assert!((BATCH_COMMANDS_MAX..=BATCH_COMMANDS_MAX + 2).contains(&gathered.len()));
    }

    fn draft(origin: Origin) -> EncodedCommand {
        let operation = match &origin {
            Origin::Controller { .. } | Origin::Replica { .. } => LeaderOperation::AssessZones.into(),
            Origin::Operator { .. } | Origin::Node { .. } => OperatorOperation::SetPolicy { changes: vec![] }.into(),
        };
        EncodedCommand::new(Command { origin, request: None, operation }).unwrap()
    }
}
