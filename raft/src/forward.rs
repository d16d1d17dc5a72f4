//! Asking the leader: operators' writes, read indexes and membership changes.
//!
//! Actors' proposals never come this way; they are bound to the term of the replica that made them.

use muster_lifecycle::command::{Command, Outcome};
use muster_proto::v1;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::codec::{decode, encode};
use crate::membership::{MembershipChange, MembershipError};
use crate::proposer::{ProposeError, Settled};
use crate::replica::{Replica, RequestError};
use crate::types::ReplicaId;

impl Replica {
    pub(crate) async fn forward(
        &self,
        leader: ReplicaId,
        command: &Command,
        deadline: Instant,
    ) -> Result<Settled, RequestError> {
        let mut client = self.request_client(leader).ok_or(ProposeError::NotLeader { leader: None })?;
        let request = v1::ProposeRequest {
            greeting: Some(self.peers.greet(leader)),
            command: encode(command).map_err(forwarding)?,
            timeout_ms: remaining_ms(deadline),
        };
        let answer = client.propose(request).await.map_err(forwarding)?.into_inner();
        let outcome: Outcome = decode("outcome", &answer.outcome).map_err(forwarding)?;
        Ok(Settled { outcome, index: answer.index })
    }

    pub(crate) async fn ask_read_index(&self, leader: ReplicaId) -> Result<u64, RequestError> {
        let mut client = self.request_client(leader).ok_or(ProposeError::NotLeader { leader: None })?;
        let request = v1::ReadIndexRequest { greeting: Some(self.peers.greet(leader)) };
        Ok(client.read_index(request).await.map_err(forwarding)?.into_inner().index)
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
            change: encode(change).map_err(forwarding)?,
        };
        match client.change_membership(request).await {
            Ok(done) => Ok(done.into_inner().message),
            Err(status) if is_verdict(status.code()) => {
                Err(MembershipError::ByLeader { code: status.code(), message: status.message().to_owned() })
            }
            Err(status) => Err(forwarding(status).into()),
        }
    }
}

/// The leader looked at the change and said no; another replica would say the same.
fn is_verdict(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::AlreadyExists | Code::Aborted)
}

fn remaining_ms(deadline: Instant) -> u32 {
    let remaining = deadline.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(remaining).unwrap_or(u32::MAX)
}

/// What the leader answered, as our own error.
fn forwarding(status: Status) -> RequestError {
    match status.code() {
        Code::FailedPrecondition => RequestError::Refused(ProposeError::NotLeader { leader: None }),
        Code::ResourceExhausted => RequestError::Refused(ProposeError::Exhausted(status.message().to_owned())),
        Code::Unavailable
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => RequestError::Forwarding(format!("asking the leader: {}", status.message())),
    }
}
