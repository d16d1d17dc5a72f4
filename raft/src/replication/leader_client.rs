//! Client of the leader: forwards operators' and agents' writes, read indexes and membership changes.
//!
//! Actors' proposals never come this way: they are bound to the term of the replica that made them.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_proto::v1;
use openraft::async_runtime::WatchReceiver;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::membership::{MembershipChange, MembershipError};
use crate::replica::{Raft, Replica, RequestError};
use crate::replication::codec::{decode, encode};
use crate::replication::peers::{Lane, Peers};
use crate::replication::refusal::{call_failed, command_refused};
use crate::write::forwarder::{Answer, Call, Leaders};
use crate::write::proposer::{Committed, ProposeError};
use muster_lifecycle::replica::ReplicaId;

/// Asks leaders at their peers' door.
#[derive(Clone)]
pub(crate) struct PeerLeaders {
    pub(crate) raft: Raft,
    pub(crate) peers: Arc<Peers>,
}

// === impl PeerLeaders ===

impl Leaders for PeerLeaders {
    fn ask(&self, call: Call) -> BoxFuture<'static, Result<Vec<Answer>, RequestError>> {
        let leaders = self.clone();
        async move {
            let leader = leaders.raft.metrics().borrow_watched().current_leader;
            if leader != Some(call.leader) {
                return Err(ProposeError::NotLeader { leader }.into());
            }
            tokio::select! {
                // The election notices an unreachable leader long before its connection breaks.
                () = leader_is_not(&leaders.raft, call.leader) => Err(ProposeError::Unknown.into()),
                answers = leaders.propose(call) => answers,
            }
        }
        .boxed()
    }
}

impl PeerLeaders {
    async fn propose(&self, call: Call) -> Result<Vec<Answer>, RequestError> {
        let Call { leader, commands, deadline } = call;
        let member = self.raft.metrics().borrow_watched().membership_config.membership().get_node(&leader).cloned();
        let endpoint = member.ok_or(ProposeError::NotLeader { leader: None })?;
        let greeting = Some(self.peers.greet(leader));
        let request = v1::ProposeRequest { greeting, commands, timeout_ms: remaining_ms(deadline) };
        let proposed = self.peers.client(leader, &endpoint, Lane::Request).propose(request).await;
        Ok(proposed.map_err(|status| call_failed(&status))?.into_inner().answers.into_iter().map(answer).collect())
    }
}

/// Completes when another replica leads, or none.
pub(crate) async fn leader_is_not(raft: &Raft, leader: ReplicaId) {
    let mut metrics = raft.metrics();
    while metrics.borrow_and_update().current_leader == Some(leader) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

fn answer(proposed: v1::Proposed) -> Answer {
    let code = Code::from(proposed.code);
    if code != Code::Ok {
        return Err(command_refused(&Status::new(code, proposed.message)));
    }
    // The command was applied; only its outcome cannot be read.
    let outcome =
        decode("outcome", &proposed.outcome).map_err(|status| RequestError::Forwarding(status.message().to_owned()))?;
    Ok(Committed { outcome, index: proposed.index })
}

impl Replica {
    pub(crate) async fn ask_read_index(&self, leader: ReplicaId) -> Result<u64, RequestError> {
        let mut client = self.request_client(leader).ok_or(ProposeError::NotLeader { leader: None })?;
        let request = v1::ReadIndexRequest { greeting: Some(self.peers.greet(leader)) };
        Ok(client.read_index(request).await.map_err(|status| call_failed(&status))?.into_inner().index)
    }

    pub(crate) async fn forward_membership(
        &self,
        leader: ReplicaId,
        change: &MembershipChange,
    ) -> Result<String, MembershipError> {
        let not_leader = || RequestError::from(ProposeError::NotLeader { leader: None });
        let mut client = self.request_client(leader).ok_or_else(not_leader)?;
        let request = v1::MembershipRequest {
            greeting: Some(self.peers.greet(leader)),
            change: encode(change).map_err(|status| call_failed(&status))?,
        };
        match client.change_membership(request).await {
            Ok(done) => Ok(done.into_inner().message),
            Err(status) if is_verdict(status.code()) => {
                Err(MembershipError::ByLeader { code: status.code(), message: status.message().to_owned() })
            }
            Err(status) => Err(call_failed(&status).into()),
        }
    }
}

/// Whether the leader looked at the change and refused it; another replica would refuse it too.
fn is_verdict(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::AlreadyExists | Code::Aborted)
}

fn remaining_ms(deadline: Instant) -> u32 {
    let remaining = deadline.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(remaining).unwrap_or(u32::MAX)
}
