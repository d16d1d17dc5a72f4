//! How a node comes to have a session: it is found in the state or registered, and its session is claimed.
//!
//! To say "you are not known, register" to an agent means that it stops what it runs, and whether it runs anything a new
//! process of it need not know. So that is never said on the word of a replica that may merely lag behind: it first
//! catches up with the leader.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::command::{Command, Operation, Origin, Outcome};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Incarnation, Node};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_raft::proposer::{ProposeError, Settled};
use muster_raft::replica::RequestError;
use muster_raft::sealed::Draft;
use tokio::time::{Instant, sleep, timeout_at};

use crate::session::Sessions;
use crate::session::claim::claimant::Verdict;
use crate::session::stream::binding::anew;
use crate::session::stream::caller::Caller;
use crate::session::stream::refusal::Refusal;

/// How long a registration may take, the agent's patience included.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(12);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What this replica knows of a node whose agent says that it was welcomed before, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    Known(Arc<Node>),
    /// And why it must register.
    Unknown(String),
    /// This replica may lag behind: it must catch up before it may say so.
    Doubtful(String),
}

/// A node that may be bound, and what the leader says to that.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) node: Arc<Node>,
    /// Of the claim.
    pub(crate) number: u64,
    pub(crate) verdict: Verdict,
}

/// `incarnation` is what the agent was last welcomed as, if it was.
pub(crate) fn look(state: &State, name: &str, incarnation: u64) -> Look {
    let welcomed = (incarnation != 0).then_some(Incarnation(incarnation));
    match (state.node(name), welcomed) {
        (Some(node), None) => Look::Known(Arc::clone(node)),
        (Some(node), Some(welcomed)) if node.incarnation == welcomed => Look::Known(Arc::clone(node)),
        (Some(node), Some(welcomed)) if node.incarnation > welcomed => Look::Unknown(anew(name)),
        (Some(_), Some(_)) => Look::Doubtful(anew(name)),
        (None, None) => Look::Doubtful(format!("node {name:?} is not known")),
        (None, Some(_)) => Look::Doubtful(format!("node {name:?} was deleted")),
    }
}

impl Sessions {
    /// As [`look`], and in doubt only after catching up: never [`Look::Doubtful`].
    pub(crate) async fn look_for(&self, name: &str, incarnation: u64) -> Result<Look, Refusal> {
        let look_now = || look(&self.replica().current().state, name, incarnation);
        match look_now() {
            Look::Doubtful(_) => {
                self.catch_up().await?;
                Ok(look_now().decided())
            }
            certain @ (Look::Known(_) | Look::Unknown(_)) => Ok(certain),
        }
    }

    pub(crate) async fn catch_up(&self) -> Result<(), Refusal> {
        self.0.currency.catch_up().await.map_err(|behind| Refusal::unavailable(behind.to_string()))
    }

    /// Claims the session of one node.
    pub(crate) async fn admit(&self, node: Arc<Node>, caller: &Caller) -> Admitted {
        let number = self.claimant().number();
        let verdicts = self.claimant().claim(vec![caller.claim(node.slot, number)]).await;
        Admitted { node, number, verdict: verdicts.into_iter().next().unwrap_or(Verdict::Provisional) }
    }

    /// Brings `node` into the state, waits until this replica has it, and claims its session.
    pub(crate) fn register(
        &self,
        node: Text,
        register: v1::Register,
        caller: Caller,
    ) -> BoxFuture<'static, Result<Admitted, Refusal>> {
        let sessions = self.clone();
        async move {
            let draft = Box::new(muster_proto::agent::registration(&register)?);
            let deadline = Instant::now() + REGISTRATION_LIMIT;
            let running = muster_proto::agent::running(register.running.as_ref())?;
            let operation = Operation::RegisterNode { draft, uid: Uid(rand::random()), running };
            let settled = sessions.write_surely(&node, operation, deadline).await?;
            if let Outcome::Rejected(rejection) = &settled.outcome {
                return Err(Refusal::from(rejection));
            }
            let applied = timeout_at(deadline, sessions.replica().feed().wait_applied(settled.index)).await;
            applied.map_err(|_| Refusal::unavailable("this replica lags behind the leader; attach to another"))?;
            let node = sessions.replica().current().state.node(&node).cloned();
            let node = node.ok_or_else(|| Refusal::unavailable("the node was deleted again; register once more"))?;
            Ok(sessions.admit(node, &caller).await)
        }
        .boxed()
    }

    /// Registering or reporting twice does what doing it once does, so it is simply tried again: a request id for each
    /// would crowd out those that operators' retries depend on.
    ///
    /// `node` is whom the certificate or the scope names, whatever the operation says: which of the two may speak of
    /// which is for the law to decide.
    pub(crate) async fn write_surely(
        &self,
        node: &Text,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Settled, RequestError> {
        let what = operation.label();
        let command = Command { origin: Origin::Node { name: node.clone() }, request: None, operation };
        let draft = Draft::new(command).map_err(|error| RequestError::Forwarding(error.to_string()))?;
        loop {
            match self.write_as_agent((node, what), &draft, deadline).await {
                Err(RequestError::Forwarding(_) | RequestError::Refused(ProposeError::Unknown))
                    if Instant::now() + RETRY_PAUSE < deadline =>
                {
                    sleep(RETRY_PAUSE).await;
                }
                settled => return settled,
            }
        }
    }

    async fn write_as_agent(
        &self,
        (node, what): (&Text, &'static str),
        draft: &Draft,
        deadline: Instant,
    ) -> Result<Settled, RequestError> {
        let settled = self.replica().write_draft(draft, deadline).await?;
        if let Outcome::Rejected(why @ (Rejection::Forbidden(_) | Rejection::NotEntitled { .. })) = &settled.outcome {
            tracing::warn!(%node, what, %why, "denied");
        }
        Ok(settled)
    }
}

// === impl Look ===

impl Look {
    /// After catching up there is no doubt left.
    pub(crate) fn decided(self) -> Self {
        match self {
            Self::Doubtful(why) => Self::Unknown(why),
            certain @ (Self::Known(_) | Self::Unknown(_)) => certain,
        }
    }
}
