//! Audit of a replica by the others: whether it may still take part.
//!
//! Replicas compare their states: at an equal log index the digest must be equal (I-17). A replica that differs from a
//! majority has diverged, by a bug or by a flipped bit in memory, and must neither answer nor lead again. A replica
//! that was removed while it was away never learns so from the log, so the others tell it here.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_lifecycle::table::Digest;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::replica::Replica;
use muster_lifecycle::replica::ReplicaId;

const AUDIT_INTERVAL: Duration = Duration::from_secs(5);

/// The reason why a replica must stop.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Excluded {
    #[error(transparent)]
    Diverged(#[from] Diverged),
    #[error("replica {id} was removed from the cluster; ids are never reused, add this machine under a new id")]
    Retired { id: ReplicaId },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "this replica's state differs from the majority's at log index {index} (digest {ours} here, {theirs} there): it \
     has diverged and must not answer; stop it, run `muster member remove` for its id and add it anew under another id"
)]
pub struct Diverged {
    pub index: u64,
    pub ours: Digest,
    pub theirs: Digest,
}

impl Replica {
    /// Completes when the others show that this replica must stop; `None` when `stop` is cancelled.
    pub async fn audit(&self, stop: &CancellationToken) -> Option<Excluded> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(AUDIT_INTERVAL) => {}
            }
            let voters = self.members().values().filter(|member| member.voter).count();
            let reached = self.reach_members().await;
            let others: Vec<_> = reached.into_values().flatten().collect();
            if others.iter().any(|other| other.retired) {
                return Some(Excluded::Retired { id: self.id() });
            }
            let others: Vec<_> = others.into_iter().map(|other| other.digests).collect();
            if let Some(diverged) = compare(&self.feed().digests(), &others, voters) {
                return Some(diverged.into());
            }
        }
    }
}

/// Diverged, if at some index a majority of the voters agrees on a digest that this replica does not have.
fn compare(ours: &[(u64, Digest)], others: &[Vec<(u64, Digest)>], voters: usize) -> Option<Diverged> {
    ours.iter().find_map(|(index, mine)| {
        let mut votes: BTreeMap<Digest, usize> = BTreeMap::new();
        for other in others {
            if let Some((_, theirs)) = other.iter().find(|(at, _)| at == index) {
                *votes.entry(*theirs).or_default() += 1;
            }
        }
        let majority = votes.into_iter().find(|(theirs, count)| theirs != mine && *count > voters / 2);
        majority.map(|(theirs, _)| Diverged { index: *index, ours: *mine, theirs })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i_17_only_a_majority_against_us_halts_us() {
        let ours = [(64, Digest(1)), (128, Digest(2))];
        let agree = vec![(64, Digest(1)), (128, Digest(2))];
        let differ = vec![(128, Digest(9))];
        let behind = vec![(64, Digest(1))];
        assert_eq!(compare(&ours, &[agree.clone(), differ.clone()], 3), None);
        assert_eq!(compare(&ours, &[behind, differ.clone()], 3), None);
        let diverged = Diverged { index: 128, ours: Digest(2), theirs: Digest(9) };
        assert_eq!(compare(&ours, &[differ.clone(), differ], 3), Some(diverged));
        assert_eq!(compare(&ours, &[agree], 3), None);
    }
}
