//! Fitness to lead: a replica whose disk takes no writes leaves leading to the others.
//!
//! ```text
//!   disk full or slow, leads   --> a quorum of the others can write: hands over;   otherwise: leads on and says so
//!   disk full or slow, follows --> another voter can write: does not stand;        otherwise: stands, to serve reads
//!   disk well again            --> stands for election as before; leadership stays where it is
//! ```
//!
//! Hellos tell the others whether a replica can write, so leadership never goes to one that cannot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use crate::replica::Replica;
use crate::replication::hello::HelloAnswer;
use crate::storage::disk_health::DiskTrouble;
use muster_lifecycle::replica::ReplicaId;

/// How often a replica looks at its disk.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// A disk in trouble that was not synced for so long is tried with a sync of its own.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// What the parts of one replica share about its fitness.
#[derive(Debug, Default)]
pub struct Fitness {
    without_successor: AtomicBool,
    /// The term in which this replica asked another to lead; zero for none.
    handed_over_in: AtomicU64,
}

/// The conclusion of a replica from its own disk and those of the other voters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FitnessStep {
    /// The disk is well.
    Stand,
    /// The disk is in trouble, and another voter can write.
    Abstain,
    /// The disk is in trouble, and the other voters are a quorum that can write.
    HandOver { to: ReplicaId },
    /// The disk is in trouble, and without this leader the others are no quorum that can write.
    LeadOn,
    /// The disk is in trouble, and so is every other voter that answers. Reads need a leader all the same.
    StandAnyway,
}

/// Another voter, as far as it was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherVoter {
    pub id: ReplicaId,
    pub can_write: bool,
    /// The end of its log, as far as this leader knows.
    pub matched: Option<u64>,
}

/// Decides what a replica does about leading. `others` are the voters that were reached, `voters` counts all of them,
/// this one included.
pub fn decide(in_trouble: bool, leads: bool, others: &[OtherVoter], voters: usize) -> FitnessStep {
    if !in_trouble {
        return FitnessStep::Stand;
    }
    let able: Vec<&OtherVoter> = others.iter().filter(|other| other.can_write).collect();
    let quorum = able.len() > voters / 2;
    match (leads, able.into_iter().max_by_key(|other| other.matched)) {
        (true, Some(heir)) if quorum => FitnessStep::HandOver { to: heir.id },
        (true, _) => FitnessStep::LeadOn,
        (false, Some(_)) => FitnessStep::Abstain,
        (false, None) => FitnessStep::StandAnyway,
    }
}

// === impl Fitness ===

impl Fitness {
    /// This replica leads, its disk takes no writes, and no other replica can take over.
    pub(crate) fn is_without_successor(&self) -> bool {
        self.without_successor.load(Ordering::Relaxed)
    }

    pub(crate) fn hands_over_in(&self, term: u64) {
        self.handed_over_in.store(term, Ordering::Relaxed);
    }

    fn handed_over_in(&self, term: u64) -> bool {
        self.handed_over_in.load(Ordering::Relaxed) == term
    }
}

impl Replica {
    /// The trouble of this replica's disk, if it has any.
    pub fn disk_trouble(&self) -> Option<DiskTrouble> {
        self.health.trouble()
    }

    /// Free space on the disk under the log; `None` if the disk cannot say.
    pub fn disk_free_bytes(&self) -> Option<u64> {
        self.health.free_bytes().ok()
    }

    /// Why this replica should not be asked to lead, by its disk at this moment.
    pub(crate) fn cannot_lead(&self) -> Option<String> {
        if let Some(trouble) = self.health.look() {
            return Some(trouble.to_string());
        }
        // A leader that asked another to lead accepts no proposals in that term any more, even if the other did not
        // take over. The others must not wait for it.
        let (leader, term) = self.leader_and_term();
        let resigned = leader == Some(self.id()) && self.fitness.handed_over_in(term);
        resigned.then(|| "it asked another replica to lead".to_owned())
    }

    /// Keeps leadership with replicas whose disks take writes, until consensus stops.
    pub(crate) async fn keep_leadership_able(self) {
        let mut said = None;
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if self.raft.metrics().borrow_watched().running_state.is_err() {
                return;
            }
            let trouble = self.health.look();
            let step = self.fitness_step(trouble.is_some()).await;
            let stands = matches!(step, FitnessStep::Stand | FitnessStep::StandAnyway | FitnessStep::LeadOn);
            self.raft.runtime_config().elect(stands);
            self.fitness.without_successor.store(step == FitnessStep::LeadOn, Ordering::Relaxed);
            say_if_new(&mut said, trouble.as_ref(), step);
            if trouble.is_some() && self.health.is_unseen_for(PROBE_AFTER) {
                self.log.probe();
            }
            if let FitnessStep::HandOver { to } = step {
                self.hand_over(Some(to)).await;
            }
        }
    }

    async fn fitness_step(&self, in_trouble: bool) -> FitnessStep {
        if !in_trouble {
            return FitnessStep::Stand;
        }
        let reached = self.reach_members().await;
        let leads = self.leader() == Some(self.id());
        let voters = self.members().into_values().filter(|member| member.voter).count();
        decide(true, leads, &self.other_voters(&reached), voters)
    }

    /// The other voters among those that were reached.
    pub(crate) fn other_voters(&self, reached: &BTreeMap<ReplicaId, Result<HelloAnswer, String>>) -> Vec<OtherVoter> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let replication = metrics.replication.unwrap_or_default();
        let voters: Vec<_> = metrics.membership_config.membership().voter_ids().collect();
        let answered = reached.iter().filter_map(|(id, answer)| Some((*id, answer.as_ref().ok()?)));
        let other = |(id, answer): (ReplicaId, &HelloAnswer)| OtherVoter {
            id,
            can_write: answer.cannot_write.is_none(),
            matched: replication.get(&id).copied().flatten().map(|log_id| log_id.index),
        };
        answered.filter(|(id, _)| voters.contains(id)).map(other).collect()
    }
}

/// One line per change, not one per look.
fn say_if_new(said: &mut Option<(DiskTrouble, FitnessStep)>, trouble: Option<&DiskTrouble>, step: FitnessStep) {
    let Some(trouble) = trouble else {
        if said.take().is_some() {
            tracing::info!("the disk takes writes again: this replica may lead");
        }
        return;
    };
    let known = said.as_ref().is_some_and(|(before, then)| before.is_like(trouble) && *then == step);
    if known {
        return;
    }
    match step {
        FitnessStep::Stand => {}
        FitnessStep::Abstain => tracing::warn!(%trouble, "this replica does not stand for election meanwhile"),
        FitnessStep::HandOver { to } => tracing::warn!(%trouble, %to, "leadership goes to another replica"),
        FitnessStep::LeadOn => {
            tracing::error!(%trouble, "this replica leads on: without it no quorum of the others can write")
        }
        FitnessStep::StandAnyway => tracing::warn!(%trouble, "no other voter that answers can write either"),
    }
    *said = Some((trouble.clone(), step));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it is about, whether the disk is in trouble, whether the replica leads, the others, all voters, the step.
    type Case<'a> = (&'a str, bool, bool, &'a [OtherVoter], usize, FitnessStep);

    fn other(id: u64, can_write: bool, matched: u64) -> OtherVoter {
        OtherVoter { id: ReplicaId(id), can_write, matched: Some(matched) }
    }

    #[test]
    fn a_replica_leaves_leading_to_the_others_only_if_they_can_write_without_it() {
        let both = [other(2, true, 9), other(3, true, 7)];
        let one = [other(2, true, 9), other(3, false, 7)];
        let neither = [other(2, false, 9), other(3, false, 7)];
        let to = |id| FitnessStep::HandOver { to: ReplicaId(id) };
        let cases: &[Case<'_>] = &[
            ("all is well", false, true, &both, 3, FitnessStep::Stand),
            ("all is well, no other is reached", false, false, &[], 3, FitnessStep::Stand),
            ("the leader cannot write, both others can", true, true, &both, 3, to(2)),
            ("the longest log wins", true, true, &[other(2, true, 7), other(3, true, 9)], 3, to(3)),
            ("an unreached voter is no heir", true, true, &both[..1], 3, FitnessStep::LeadOn),
            ("one other can write, which is no quorum", true, true, &one, 3, FitnessStep::LeadOn),
            ("no other can write", true, true, &neither, 3, FitnessStep::LeadOn),
            ("the only voter", true, true, &[], 1, FitnessStep::LeadOn),
            ("one of two voters", true, true, &both[..1], 2, FitnessStep::LeadOn),
            ("three of five can write", true, true, &[both[0], both[1], other(4, true, 9)], 5, to(4)),
            ("two of five can write", true, true, &[both[0], both[1], other(4, false, 9)], 5, FitnessStep::LeadOn),
            ("a follower cannot write, both others can", true, false, &both, 3, FitnessStep::Abstain),
            ("a follower cannot write, one other can", true, false, &one, 3, FitnessStep::Abstain),
            ("a follower cannot write, nor can the others", true, false, &neither, 3, FitnessStep::StandAnyway),
            ("a follower cannot write, no other is reached", true, false, &[], 3, FitnessStep::StandAnyway),
        ];
        for (what, in_trouble, leads, others, voters, expected) in cases {
            assert_eq!(decide(*in_trouble, *leads, others, *voters), *expected, "{what}");
        }
    }
}
