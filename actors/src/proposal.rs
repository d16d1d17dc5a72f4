//! Proposals of the tree to the log, and their outcomes.
//!
//! A proposal is bound to the term in which the tree grew. An actor never waits for one: the answer comes back as a
//! message. If no answer comes, the actor is told after a while that the proposal failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_lifecycle::command::{LeaderOperation, Receipt};
use muster_lifecycle::rejection::Rejection;
use ractor::{ActorRef, Message};
use tokio::sync::{mpsc, oneshot};

/// After this long without an answer a proposal counts as failed. If the log decides it later after all, the state
/// that it says it changes *from* keeps a second proposal from doing harm.
const PATIENCE: Duration = Duration::from_secs(30);

/// Operations proposed together, at most [`OPERATIONS_MAX`](muster_lifecycle::clerk_task::OPERATIONS_MAX).
#[derive(Debug)]
pub struct Proposal {
    /// The proposal is not to be made in any other term.
    pub term: u64,
    pub operations: Vec<LeaderOperation>,
    /// Some operation is a verdict about whether a node lives: one read index makes sure that this replica still
    /// leads.
    pub confirm: bool,
    /// One outcome per operation, in order.
    pub settled: oneshot::Sender<Vec<ProposalOutcome>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalOutcome {
    Done(Receipt),
    Rejected(Rejection),
    /// Not decided: no longer leader, overloaded, not confirmed. It may be proposed again.
    Failed(String),
}

/// The way of a tree's proposals to the log.
#[derive(Debug)]
pub(crate) struct Proposer {
    term: u64,
    proposals: mpsc::Sender<Proposal>,
    closed: AtomicBool,
}

/// Room for one proposal.
pub(crate) struct Permit<'a> {
    term: u64,
    room: mpsc::Permit<'a, Proposal>,
}

/// A proposal that has no answer yet.
pub(crate) struct Pending {
    operations: usize,
    settled: oneshot::Receiver<Vec<ProposalOutcome>>,
}

// === impl ProposalOutcome ===

impl ProposalOutcome {
    /// The log has accepted or rejected it.
    pub fn is_decided(&self) -> bool {
        match self {
            Self::Done(_) | Self::Rejected(_) => true,
            Self::Failed(_) => false,
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

// === impl Proposer ===

impl Proposer {
    pub(crate) fn new(term: u64, proposals: mpsc::Sender<Proposal>) -> Self {
        Self { term, proposals, closed: AtomicBool::new(false) }
    }

    /// After this call nothing more is proposed.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// `None` while there is no room: the caller tries again in the next round.
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let room = self.proposals.try_reserve().ok()?;
        Some(Permit { term: self.term, room })
    }
}

impl Permit<'_> {
    pub(crate) fn propose(self, operations: Vec<LeaderOperation>, confirm: bool) -> Pending {
        let (settled, answer) = oneshot::channel();
        let pending = Pending { operations: operations.len(), settled: answer };
        self.room.send(Proposal { term: self.term, operations, confirm, settled });
        pending
    }
}

// === impl Pending ===

impl Pending {
    /// Tells the actor the outcomes as soon as they are known, one per operation.
    pub(crate) fn report_to<M: Message>(
        self,
        actor: ActorRef<M>,
        message: impl FnOnce(Vec<ProposalOutcome>) -> M + Send + 'static,
    ) {
        tokio::spawn(async move {
            let outcomes = self.settled().await;
            // An actor that is gone is rebuilt from the state, which holds the result.
            let _ = actor.cast(message(outcomes));
        });
    }

    async fn settled(self) -> Vec<ProposalOutcome> {
        let failed = |reason: &str| ProposalOutcome::Failed(reason.to_owned());
        let mut outcomes = match tokio::time::timeout(PATIENCE, self.settled).await {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(_)) => vec![failed("the proposal was dropped"); self.operations],
            Err(_) => vec![failed("no answer came in time"); self.operations],
        };
        outcomes.resize(self.operations, failed("this operation was not answered"));
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_or_closed_proposer_gives_no_permit() {
        let (proposals, mut inbox) = mpsc::channel(1);
        let proposer = Proposer::new(7, proposals);
        let pending = proposer.permit().unwrap().propose(vec![LeaderOperation::AssessZones], true);
        assert!(proposer.permit().is_none());
        let proposal = inbox.recv().await.unwrap();
        assert_eq!((proposal.term, proposal.confirm), (7, true));
        assert!(proposer.permit().is_some());
        proposer.close();
        assert!(proposer.permit().is_none());
        drop(proposal);
        assert!(matches!(pending.settled().await.as_slice(), [ProposalOutcome::Failed(_)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proposal_without_a_complete_answer_fails() {
        let (proposals, mut inbox) = mpsc::channel(2);
        let proposer = Proposer::new(7, proposals);
        let two = || vec![LeaderOperation::AssessZones, LeaderOperation::AssessZones];
        let unanswered = proposer.permit().unwrap().propose(two(), false);
        let half_answered = proposer.permit().unwrap().propose(two(), false);
        let _kept = inbox.recv().await.unwrap();
        inbox.recv().await.unwrap().settled.send(vec![ProposalOutcome::Rejected(Rejection::NotAllDisrupted)]).unwrap();
        assert!(unanswered.settled().await.iter().all(|outcome| !outcome.is_decided()));
        let outcomes = half_answered.settled().await;
        assert_eq!(outcomes[0], ProposalOutcome::Rejected(Rejection::NotAllDisrupted));
        assert!(outcomes.len() == 2 && !outcomes[1].is_decided());
    }
}
