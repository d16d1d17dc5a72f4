//! A registration on a stream whose node is bound: one write, or none if the Node describes its machine (RG-4).
//!
//! An agent that starts again finds its Node there and says once how the machine is now. It is answered in either case,
//! and keeps its session whatever the answer is: labels are no reason to stop hearing a node.

use muster_lifecycle::command::{AgentOperation, Outcome};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::reconcile::reconciliation;
use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::write::{AgentWrites, NodeGone};

pub(crate) async fn reconcile(
    writes: &AgentWrites,
    name: &Text,
    incarnation: Incarnation,
    register: &v1::Register,
) -> Result<v1::Registered, NodeGone> {
    let answered = |refused: String| Ok(v1::Registered { refused });
    let draft = match muster_proto::agent::registration(register) {
        Ok(draft) => draft,
        Err(error) => return answered(error.to_string()),
    };
    let current = writes.replica().current();
    let known = current.state.node(name).filter(|node| node.incarnation == incarnation).ok_or(NodeGone)?;
    let Some(draft) = reconciliation(known, draft) else { return answered(String::new()) };
    // The status report says what runs. If the Node is deleted at this moment, this write creates it anew, and its
    // agent is asked to stop and to register, as after any deletion.
    let operation = AgentOperation::RegisterNode { draft: Box::new(draft), uid: Uid(rand::random()), running: None };
    match writes.submit_report(name, operation).await {
        Ok(Outcome::Done(_)) => answered(String::new()),
        Ok(Outcome::Rejected(rejection)) => answered(rejection.to_string()),
        Err(error) => answered(error.to_string()),
    }
}
