//! What becomes of a registration on a stream that is bound: nothing if the Node describes its machine, else one write.
//!
//! An agent that starts again finds its Node there and says once how the machine is now (RG-4). It is answered in either
//! case, and keeps its session whatever the answer is: labels are no reason to stop hearing a node.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::command::{Operation, Outcome};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::reconcile::reconciliation;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use tokio::time::{Instant, timeout_at};

use crate::session::Sessions;

/// How long it may take to be written, elections included; the agent says it again after that.
const RECONCILING_LIMIT: Duration = Duration::from_secs(10);

/// How the registration of a node that exists ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    Answered(v1::Registered),
    /// The node is no longer the one that registers.
    Gone,
}

impl Sessions {
    /// One at a time per node, and parsed now that it is its turn, as reports are.
    pub(crate) fn reconcile(
        &self,
        (node, incarnation): (Text, Incarnation),
        register: v1::Register,
    ) -> BoxFuture<'static, Reconciled> {
        let sessions = self.clone();
        async move { sessions.take_registration(node, incarnation, &register).await }.boxed()
    }

    async fn take_registration(&self, name: Text, incarnation: Incarnation, register: &v1::Register) -> Reconciled {
        let draft = match muster_proto::agent::registration(register) {
            Ok(draft) => draft,
            Err(error) => return answered(error.to_string()),
        };
        let current = self.replica().current();
        let Some(known) = current.state.node(&name).filter(|node| node.incarnation == incarnation) else {
            return Reconciled::Gone;
        };
        let Some(draft) = reconciliation(known, draft) else { return answered(String::new()) };
        // What runs is said with the status. Were the Node deleted at this moment, this one would be made anew, and its
        // agent asked to stop and to register, as after any deletion.
        let operation = Operation::RegisterNode { draft: Box::new(draft), uid: Uid(rand::random()), running: None };
        let deadline = Instant::now() + RECONCILING_LIMIT;
        let settled = match self.write_surely(&name, operation, deadline).await {
            Ok(settled) => settled,
            Err(error) => return answered(error.to_string()),
        };
        // What it did is the base of the next comparison.
        let _ = timeout_at(deadline, self.replica().feed().wait_applied(settled.index)).await;
        match settled.outcome {
            Outcome::Done(_) => answered(String::new()),
            Outcome::Rejected(rejection) => answered(rejection.to_string()),
        }
    }
}

fn answered(refused: String) -> Reconciled {
    Reconciled::Answered(v1::Registered { refused })
}
