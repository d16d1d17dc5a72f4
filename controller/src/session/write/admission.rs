//! Admission of a node to a session: the node is found in the state or registered, and its session is claimed.
//!
//! An agent that is told "you are not known, register" stops what it runs, and a new process of it need not know
//! whether it runs anything. So a replica that may merely lag behind never says it: it catches up with the leader
//! first.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::command::{AgentOperation, Outcome};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Incarnation, Node};
use muster_lifecycle::session::{Recognition, recognise};
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use tokio::time::{Instant, timeout_at};

use crate::session::claim::claimant::{ClaimOutcome, Claimant};
use crate::session::stream::caller::Caller;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::write::AgentWrites;

/// How long a registration may take, the agent's patience included.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(12);

/// Clones are cheap.
#[derive(Clone)]
pub(crate) struct Admission {
    writes: AgentWrites,
    claimant: Arc<Claimant>,
}

/// A node that may be bound, and how the claim of its session ended.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) node: Arc<Node>,
    /// The number of the claim.
    pub(crate) number: u64,
    pub(crate) outcome: ClaimOutcome,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new(writes: AgentWrites, claimant: Arc<Claimant>) -> Self {
        Self { writes, claimant }
    }

    /// The recognition of a node whose agent was last welcomed as `incarnation`, zero if never. It is certain: in doubt
    /// this replica catches up first.
    pub(crate) async fn recognise(&self, name: &str, incarnation: u64) -> Result<Recognition, SessionRefusal> {
        let look = |state: &State| recognise(state, name, welcomed(incarnation));
        let found = self.writes.look_surely(look, Recognition::is_certain).await;
        found.map(Recognition::after_catching_up).map_err(|(_, behind)| SessionRefusal::from(behind))
    }

    /// The same for many nodes at once. Nodes in doubt stay so if this replica cannot catch up.
    pub(crate) async fn recognise_all(&self, bindings: &[v1::Binding]) -> Vec<Recognition> {
        let look = |state: &State| -> Vec<Recognition> {
            let one = |binding: &v1::Binding| recognise(state, &binding.node, welcomed(binding.incarnation));
            bindings.iter().map(one).collect()
        };
        match self.writes.look_surely(look, |found| found.iter().all(Recognition::is_certain)).await {
            Ok(found) => found.into_iter().map(Recognition::after_catching_up).collect(),
            Err((found, _)) => found,
        }
    }

    /// Claims the session of one node.
    pub(crate) async fn admit(&self, node: Arc<Node>, caller: &Caller) -> Admitted {
        let number = self.claimant.number();
        let outcomes = self.claimant.claim(vec![caller.claim(node.slot, number)]).await;
        Admitted { node, number, outcome: outcomes.into_iter().next().unwrap_or(ClaimOutcome::Provisional) }
    }

    /// Claims the sessions of many nodes together, in their order. Beside each node: whether its agent continues.
    pub(crate) async fn admit_all(&self, nodes: Vec<(Arc<Node>, bool)>, caller: &Caller) -> Vec<Admitted> {
        let (mut numbered, mut claims) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
        for (node, continues) in nodes {
            let number = self.claimant.number();
            claims.push(v1::SessionClaim { newcomer: !continues, ..caller.claim(node.slot, number) });
            numbered.push((node, number));
        }
        let outcomes = self.claimant.claim(claims).await;
        let admitted = |((node, number), outcome)| Admitted { node, number, outcome };
        numbered.into_iter().zip(outcomes).map(admitted).collect()
    }

    /// Releases a session that was claimed for a node that the stream has let go of in the meantime.
    pub(crate) fn release(&self, caller: &Caller, admitted: &Admitted) {
        self.claimant.release(caller.claim(admitted.node.slot, admitted.number));
    }

    /// Brings `node` into the state, waits until this replica has it, and claims its session.
    pub(crate) async fn register(
        &self,
        node: &Text,
        register: &v1::Register,
        caller: &Caller,
    ) -> Result<Admitted, SessionRefusal> {
        let draft = Box::new(muster_proto::agent::registration(register)?);
        let deadline = Instant::now() + REGISTRATION_LIMIT;
        let running = muster_proto::agent::running(register.running.as_ref())?;
        let operation = AgentOperation::RegisterNode { draft, uid: Uid(rand::random()), running };
        let written = self.writes.submit(node, operation, deadline).await?;
        if let Outcome::Rejected(rejection) = &written.outcome {
            return Err(SessionRefusal::from(rejection));
        }
        let replica = self.writes.replica();
        let applied = timeout_at(deadline, replica.feed().wait_applied(written.index)).await;
        applied.map_err(|_| SessionRefusal::unavailable("this replica lags behind the leader; attach to another"))?;
        let node = replica.current().state.node(node).cloned();
        let node = node.ok_or_else(|| SessionRefusal::unavailable("the node was deleted again; register once more"))?;
        Ok(self.admit(node, caller).await)
    }

    pub(crate) fn writes(&self) -> &AgentWrites {
        &self.writes
    }
}

fn welcomed(incarnation: u64) -> Option<Incarnation> {
    (incarnation != 0).then_some(Incarnation(incarnation))
}
