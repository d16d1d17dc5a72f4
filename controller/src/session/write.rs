//! Writes in a node's name: what agents and the enrolment of nodes submit to the log, within a budget.

pub(crate) mod admission;
mod budget;
pub(crate) mod catch_up;
pub(crate) mod pods;
pub(crate) mod reconcile;
pub(crate) mod report;
pub(crate) mod trust;

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::command::{AgentOperation, Command, Origin, Outcome};
use muster_lifecycle::credential::Distrust;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_raft::encoded::EncodedCommand;
use muster_raft::proposer::{Committed, ProposeError};
use muster_raft::replica::{Replica, RequestError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::session::figures::SessionFigures;

use self::budget::WriteBudgets;
use self::catch_up::{CatchUp, NotCaughtUp};

const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a report may take to be written, elections included; the agent sends it again after that.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// Submits commands in the name of nodes. Clones share the budgets.
#[derive(Clone)]
pub struct AgentWrites(Arc<SharedWrites>);

struct SharedWrites {
    replica: Replica,
    catch_up: CatchUp,
    budgets: WriteBudgets,
    figures: Arc<SessionFigures>,
}

/// The node is no longer the one that reports: it was deleted, or created anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeGone;

// === impl AgentWrites ===

impl AgentWrites {
    pub(crate) fn new(replica: Replica, catch_up: CatchUp, figures: Arc<SessionFigures>) -> Self {
        Self(Arc::new(SharedWrites { replica, catch_up, budgets: WriteBudgets::default(), figures }))
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// Spends what one write of `node` costs, or says when it may write again.
    pub(crate) fn spend(&self, node: &Text) -> Result<(), Instant> {
        self.0.budgets.spend(node, Instant::now()).inspect_err(|_| self.0.figures.delay())
    }

    /// Submits `operation` in the name of `node`, and again as long as it is not known whether it was written. A
    /// repeated write has the same effect as one; a request id for each would crowd out the ids that operators' retries
    /// depend on.
    ///
    /// `node` is the node that the certificate or the scope names, whatever the operation says: the state machine
    /// decides whether it may write about the node in the operation.
    pub(crate) async fn submit(
        &self,
        node: &Text,
        operation: AgentOperation,
        deadline: Instant,
    ) -> Result<Committed, RequestError> {
        let what = operation.label();
        let command =
            Command { origin: Origin::Node { name: node.clone() }, request: None, operation: operation.into() };
        let draft = EncodedCommand::new(command).map_err(|error| RequestError::Forwarding(error.to_string()))?;
        loop {
            match self.submit_once((node, what), &draft, deadline).await {
                Err(RequestError::Forwarding(_) | RequestError::Refused(ProposeError::Unknown))
                    if Instant::now() + RETRY_PAUSE < deadline =>
                {
                    sleep(RETRY_PAUSE).await;
                }
                committed => return committed,
            }
        }
    }

    async fn submit_once(
        &self,
        (node, what): (&Text, &'static str),
        draft: &EncodedCommand,
        deadline: Instant,
    ) -> Result<Committed, RequestError> {
        let committed = self.0.replica.write_encoded(draft, deadline).await?;
        if let Outcome::Rejected(why @ (Rejection::Forbidden(_) | Rejection::NotEntitled { .. })) = &committed.outcome {
            tracing::warn!(%node, what, %why, "denied");
        }
        Ok(committed)
    }

    /// Submits a bound node's report, and waits until this replica has applied it, because the next report is compared
    /// with the resulting state. If this replica lags far behind, the next report merely writes again.
    async fn submit_report(&self, node: &Text, operation: AgentOperation) -> Result<Outcome, RequestError> {
        let deadline = Instant::now() + REPORT_LIMIT;
        let committed = self.submit(node, operation, deadline).await?;
        let _ = timeout_at(deadline, self.0.replica.feed().wait_applied(committed.index)).await;
        Ok(committed.outcome)
    }

    /// The result of `look` at the state. If it is in doubt, this replica catches up with the leader and looks again.
    /// If it cannot catch up, the first result comes with the error.
    pub(crate) async fn look_surely<T>(
        &self,
        look: impl Fn(&State) -> T,
        is_certain: impl Fn(&T) -> bool,
    ) -> Result<T, (T, NotCaughtUp)> {
        let found = look(&self.0.replica.current().state);
        if is_certain(&found) {
            return Ok(found);
        }
        match self.0.catch_up.catch_up().await {
            Ok(()) => Ok(look(&self.0.replica.current().state)),
            Err(behind) => Err((found, behind)),
        }
    }

    /// Whether `key` may speak for `node`. A replica that lags behind may not know of the newest key, so it refuses no
    /// key before it has caught up.
    pub(crate) async fn admits_key(&self, node: &str, key: &Fingerprint) -> Result<Result<(), Distrust>, NotCaughtUp> {
        let admitted = self.look_surely(|state| state.admits_key(node, key), Result::is_ok).await;
        admitted.map_err(|(_, behind)| behind)
    }
}
