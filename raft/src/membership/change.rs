//! Membership changes: add a learner, promote it, remove a member, move leadership.

use std::collections::BTreeSet;

use muster_lifecycle::command::{Command, Origin, Outcome, ReplicaOperation};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, RaftError};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::replica::{RETRY_PAUSE, Replica, RequestError};
use crate::types::{Endpoint, TypeConfig};
use crate::write::proposer::ProposeError;
use muster_lifecycle::replica::ReplicaId;

/// How far behind the leader a learner may be when it becomes a voter.
const PROMOTION_LAG_MAX: u64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipChange {
    Add {
        id: ReplicaId,
        endpoint: Endpoint,
    },
    Promote {
        id: ReplicaId,
    },
    Remove {
        id: ReplicaId,
    },
    /// `None`: to the voter whose log is closest to the leader's.
    Transfer {
        to: Option<ReplicaId>,
    },
}

/// The reason why a membership change was not made. Each says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MembershipError {
    #[error("replica {id} was removed earlier; ids are never reused, add the machine under a new id")]
    Retired { id: ReplicaId },
    #[error("replica {id} is a member already; to change its addresses, remove it and add it under a new id")]
    AlreadyMember { id: ReplicaId },
    #[error("replica {id} is not a member; add it first (`muster member add`)")]
    NotMember { id: ReplicaId },
    #[error("replica {id} is a voter already")]
    AlreadyVoter { id: ReplicaId },
    #[error("replica {id} is {behind} log entries behind the leader; promote it when it has caught up")]
    TooFarBehind { id: ReplicaId, behind: u64 },
    #[error(
        "replica {id} has not been heard of yet: is it running, at the addresses it was added with? promote it when \
         `muster get replicas` shows it as reachable"
    )]
    NotAnnounced { id: ReplicaId },
    #[error(
        "after this change a majority of the voters would be silent (replicas {silent}), and nothing could be committed \
         any more; bring them back or remove them first"
    )]
    WouldLoseQuorum { silent: String },
    #[error("replica {id} is the last voter and cannot be removed")]
    LastVoter { id: ReplicaId },
    #[error("replica {id} is not a voter, so it cannot lead; promote it first")]
    CannotLead { id: ReplicaId },
    #[error("replica {id} cannot lead now: {why}")]
    CannotWrite { id: ReplicaId, why: String },
    #[error("leadership did not move in time; is the target reachable?")]
    NotMoved,
    #[error("{0}")]
    Consensus(String),
    #[error("{message}")]
    ByLeader { code: tonic::Code, message: String },
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Replica {
    /// Makes the change wherever the leader is, and says what was done.
    pub async fn change_membership(
        &self,
        change: &MembershipChange,
        deadline: Instant,
    ) -> Result<String, MembershipError> {
        loop {
            let failure = match timeout_at(deadline, self.change_once(change, deadline)).await {
                Ok(Err(MembershipError::Request(failure))) => failure,
                Ok(done) => return done,
                Err(_) => return Err(self.no_quorum().await.into()),
            };
            // Only a change that certainly did not happen is tried again: a change is not idempotent.
            let not_led = matches!(failure, RequestError::Refused(ProposeError::NotLeader { .. }));
            if !not_led || Instant::now() + RETRY_PAUSE >= deadline {
                return Err(failure.into());
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn change_once(&self, change: &MembershipChange, deadline: Instant) -> Result<String, MembershipError> {
        match self.leader() {
            Some(leader) if leader == self.id() => self.change_as_leader(change, deadline).await,
            Some(leader) => self.forward_membership(leader, change).await,
            None => Err(RequestError::from(ProposeError::NotLeader { leader: None }).into()),
        }
    }

    pub(crate) async fn change_as_leader(
        &self,
        change: &MembershipChange,
        deadline: Instant,
    ) -> Result<String, MembershipError> {
        match change {
            MembershipChange::Add { id, endpoint } => self.add_learner(*id, endpoint).await,
            MembershipChange::Promote { id } => self.promote(*id).await,
            MembershipChange::Remove { id } => self.remove(*id, deadline).await,
            MembershipChange::Transfer { to } => self.transfer(*to).await,
        }
    }

    async fn add_learner(&self, id: ReplicaId, endpoint: &Endpoint) -> Result<String, MembershipError> {
        if self.current().state.replicas().get(&id).is_some_and(|known| known.retired) {
            return Err(MembershipError::Retired { id });
        }
        if self.members().contains_key(&id) {
            return Err(MembershipError::AlreadyMember { id });
        }
        self.raft.add_learner(id, endpoint.clone(), false).await.map_err(consensus)?;
        Ok(format!("replica {id} added as a learner at {endpoint}; promote it when it has caught up"))
    }

    async fn promote(&self, id: ReplicaId) -> Result<String, MembershipError> {
        let member = self.members().remove(&id).ok_or(MembershipError::NotMember { id })?;
        if member.voter {
            return Err(MembershipError::AlreadyVoter { id });
        }
        // Until a replica has announced its store, a wiped disk would go unnoticed.
        if !self.current().state.replicas().contains(&id) {
            return Err(MembershipError::NotAnnounced { id });
        }
        match self.entries_behind(id) {
            Some(behind) if behind <= PROMOTION_LAG_MAX => {}
            Some(behind) => return Err(MembershipError::TooFarBehind { id, behind }),
            None => return Err(MembershipError::NotAnnounced { id }),
        }
        let mut voters = self.voters();
        voters.insert(id);
        self.require_quorum_of(&voters).await?;
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.raft.change_membership(voters, false).await.map_err(consensus)?;
        Ok(format!("replica {id} is a voter now"))
    }

    async fn remove(&self, id: ReplicaId, deadline: Instant) -> Result<String, MembershipError> {
        let Some(member) = self.members().remove(&id) else { return self.finish_removal(id).await };
        if member.voter {
            let mut voters = self.voters();
            voters.remove(&id);
            if voters.is_empty() {
                return Err(MembershipError::LastVoter { id });
            }
            self.require_quorum_of(&voters).await?;
            if id == self.id() {
                // The next leader removes this replica: it can finish the removal, which this replica might not.
                return self.remove_through_successor(id, deadline).await;
            }
            let voters = ChangeMembers::RemoveVoters(BTreeSet::from([id]));
            self.raft.change_membership(voters, false).await.map_err(consensus)?;
        } else {
            let learners = ChangeMembers::RemoveNodes(BTreeSet::from([id]));
            self.raft.change_membership(learners, false).await.map_err(consensus)?;
        }
        self.retire(id).await?;
        Ok(format!("replica {id} removed; its id is retired"))
    }

    /// Retires the id if a removal's leader died halfway: the membership is changed then, but the id still in use.
    async fn finish_removal(&self, id: ReplicaId) -> Result<String, MembershipError> {
        let known = self.current().state.replicas().get(&id).cloned();
        match known {
            Some(known) if !known.retired => {
                self.retire(id).await?;
                Ok(format!("replica {id} removed; its id is retired"))
            }
            Some(_) | None => Err(MembershipError::NotMember { id }),
        }
    }

    fn voters(&self) -> BTreeSet<ReplicaId> {
        self.members().into_iter().filter(|(_, member)| member.voter).map(|(id, _)| id).collect()
    }

    /// Refuses a configuration without a live majority: a change into it could never be committed nor taken back.
    async fn require_quorum_of(&self, voters: &BTreeSet<ReplicaId>) -> Result<(), MembershipError> {
        let reached = self.reach_members().await;
        let silent = |id: &&ReplicaId| **id != self.id() && !reached.get(*id).is_some_and(Result::is_ok);
        let silent: Vec<String> = voters.iter().filter(silent).map(ToString::to_string).collect();
        if voters.len() - silent.len() > voters.len() / 2 {
            return Ok(());
        }
        Err(MembershipError::WouldLoseQuorum { silent: silent.join(", ") })
    }

    async fn remove_through_successor(&self, id: ReplicaId, deadline: Instant) -> Result<String, MembershipError> {
        if !self.hand_over(None).await {
            return Err(MembershipError::NotMoved);
        }
        let change = MembershipChange::Remove { id };
        Box::pin(self.change_membership(&change, deadline)).await
    }

    async fn retire(&self, id: ReplicaId) -> Result<(), MembershipError> {
        let operation = ReplicaOperation::RetireReplica { id };
        let command = Command { origin: Origin::Replica { id: self.id() }, request: None, operation: operation.into() };
        match self.proposer.propose(command).await.map_err(RequestError::from)?.outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Rejected(rejection) => Err(MembershipError::Consensus(rejection.to_string())),
        }
    }

    async fn transfer(&self, to: Option<ReplicaId>) -> Result<String, MembershipError> {
        if let Some(id) = to {
            let member = self.members().remove(&id).ok_or(MembershipError::NotMember { id })?;
            if !member.voter {
                return Err(MembershipError::CannotLead { id });
            }
            if id == self.id() {
                return Ok(format!("replica {id} leads already"));
            }
            self.require_able(id).await?;
        }
        if !self.hand_over(to).await {
            return Err(MembershipError::NotMoved);
        }
        let leader = self.leader().map_or_else(|| "another replica".to_owned(), |id| format!("replica {id}"));
        Ok(format!("{leader} leads now"))
    }

    /// A leader that asks another replica to lead takes no writes any more, so it asks none that will not.
    async fn require_able(&self, id: ReplicaId) -> Result<(), MembershipError> {
        match self.reach_members().await.remove(&id) {
            Some(Ok(answer)) => answer.cannot_write.map_or(Ok(()), |why| Err(MembershipError::CannotWrite { id, why })),
            Some(Err(_)) | None => Err(MembershipError::NotMoved),
        }
    }

    /// `None` if the replica has never answered.
    fn entries_behind(&self, id: ReplicaId) -> Option<u64> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let matched = metrics.replication.and_then(|replication| replication.get(&id).cloned().flatten())?;
        Some(metrics.last_log_index.unwrap_or(0).saturating_sub(matched.index))
    }
}

fn consensus(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    MembershipError::Consensus(error.to_string())
}
