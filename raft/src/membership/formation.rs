//! Formation, the first start of a replica: it forms the cluster, or waits to be let in.
//!
//! A replica with an empty disk asks the others before it does anything. If one of them knows it with another store,
//! its disk was wiped and it must not come back under its old id (I-28). The initial member with the lowest id forms
//! the cluster, once all initial members are there and none of them has a log. A majority is not enough: a wiped
//! replica and one that never started would form a second cluster beside the first.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::error::{InitializeError, RaftError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::replica::Replica;
use crate::replication::hello::{self, HelloAnswer};
use crate::types::Endpoint;
use muster_lifecycle::replica::ReplicaId;

const ROUND_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormationError {
    #[error(
        "replica {id} is known to replica {witness} with another store: its disk was wiped or replaced, and a vote it \
         gave may be forgotten; run `muster member remove {id}`, then add this machine under a new id \
         (`muster init add-replica`, `muster member add`)"
    )]
    Wiped { id: ReplicaId, witness: ReplicaId },
    #[error("replica {id} was removed from the cluster; ids are never reused, add this machine under a new id")]
    Retired { id: ReplicaId },
    #[error("cannot form the cluster: {0}")]
    Consensus(String),
}

/// The conclusion of an empty replica from the greetings of one round.
#[derive(Debug, PartialEq, Eq)]
enum FormationStep {
    Found,
    WaitForOthers,
    /// The cluster exists; its leader will send the log.
    WaitForLog,
    Refuse(FormationError),
}

impl Replica {
    /// Completes once this replica has a log. `initial` is empty for a replica that joins a running cluster.
    pub async fn form(
        &self,
        initial: &BTreeMap<ReplicaId, Endpoint>,
        stop: &CancellationToken,
    ) -> Result<(), FormationError> {
        while !stop.is_cancelled() && !self.has_log() {
            if !initial.is_empty() {
                self.formation_round(initial).await?;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(ROUND_PAUSE) => {}
            }
        }
        Ok(())
    }

    fn has_log(&self) -> bool {
        self.raft.metrics().borrow_watched().last_log_index.is_some()
    }

    async fn formation_round(&self, initial: &BTreeMap<ReplicaId, Endpoint>) -> Result<(), FormationError> {
        let others = initial.iter().filter(|(id, _)| **id != self.id());
        let greetings = others.map(|(id, endpoint)| async { (*id, hello::greet(&self.peers, *id, endpoint).await) });
        let reached: BTreeMap<_, _> = futures::future::join_all(greetings)
            .await
            .into_iter()
            .filter_map(|(id, reached)| Some((id, reached.ok()?)))
            .collect();
        match judge(self.id(), initial.len(), &reached, self.info.store_id) {
            FormationStep::Found => self.found(initial).await,
            FormationStep::WaitForOthers | FormationStep::WaitForLog => Ok(()),
            FormationStep::Refuse(error) => Err(error),
        }
    }

    async fn found(&self, initial: &BTreeMap<ReplicaId, Endpoint>) -> Result<(), FormationError> {
        match self.raft.initialize(initial.clone()).await {
            Ok(()) => {
                tracing::info!(members = ?initial.keys().collect::<Vec<_>>(), "formed the cluster");
                Ok(())
            }
            // A log or a vote of another replica arrived in between: the cluster exists.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(FormationError::Consensus(error.to_string())),
        }
    }
}

fn judge(
    id: ReplicaId,
    members: usize,
    reached: &BTreeMap<ReplicaId, HelloAnswer>,
    store: muster_lifecycle::meta::Uid,
) -> FormationStep {
    for (witness, other) in reached {
        if other.retired {
            return FormationStep::Refuse(FormationError::Retired { id });
        }
        if other.known_store.is_some_and(|known| known != store) {
            return FormationStep::Refuse(FormationError::Wiped { id, witness: *witness });
        }
    }
    if reached.values().any(|other| other.initialized) {
        return FormationStep::WaitForLog;
    }
    let all_present = reached.len() + 1 == members;
    let lowest = reached.keys().all(|other| *other > id);
    if all_present && lowest { FormationStep::Found } else { FormationStep::WaitForOthers }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::meta::Uid;

    use super::*;

    fn reached(initialized: bool, known: Option<u128>) -> HelloAnswer {
        HelloAnswer {
            initialized,
            known_store: known.map(Uid),
            retired: false,
            applied: 0,
            revision: 0,
            digest: String::new(),
            digests: Vec::new(),
            version: String::new(),
            cannot_write: None,
        }
    }

    #[test]
    fn an_empty_replica_forms_the_cluster_only_as_the_lowest_id_when_all_are_reached() {
        let mine = Uid(1);
        let none = BTreeMap::new();
        assert_eq!(judge(ReplicaId(1), 3, &none, mine), FormationStep::WaitForOthers);
        assert_eq!(judge(ReplicaId(1), 1, &none, mine), FormationStep::Found);
        let second = BTreeMap::from([(ReplicaId(2), reached(false, None))]);
        assert_eq!(judge(ReplicaId(1), 3, &second, mine), FormationStep::WaitForOthers);
        let both = BTreeMap::from([(ReplicaId(2), reached(false, None)), (ReplicaId(3), reached(false, None))]);
        assert_eq!(judge(ReplicaId(1), 3, &both, mine), FormationStep::Found);
        let others = BTreeMap::from([(ReplicaId(1), reached(false, None)), (ReplicaId(3), reached(false, None))]);
        assert_eq!(judge(ReplicaId(2), 3, &others, mine), FormationStep::WaitForOthers);
    }

    #[test]
    fn i_28_a_wiped_replica_never_comes_back_under_its_old_id() {
        let mine = Uid(1);
        let joined = BTreeMap::from([(ReplicaId(2), reached(true, Some(1)))]);
        assert_eq!(judge(ReplicaId(1), 3, &joined, mine), FormationStep::WaitForLog);
        let wiped = BTreeMap::from([(ReplicaId(2), reached(true, Some(7)))]);
        assert_eq!(
            judge(ReplicaId(1), 3, &wiped, mine),
            FormationStep::Refuse(FormationError::Wiped { id: ReplicaId(1), witness: ReplicaId(2) })
        );
        let removed = BTreeMap::from([(ReplicaId(3), HelloAnswer { retired: true, ..reached(true, None) })]);
        assert_eq!(
            judge(ReplicaId(1), 3, &removed, mine),
            FormationStep::Refuse(FormationError::Retired { id: ReplicaId(1) })
        );
    }
}
