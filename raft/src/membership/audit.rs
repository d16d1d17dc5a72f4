//! Audit of the replicas by each other: whether their states agree, and whether this one may still take part.
//!
//! At an equal log index the digests of two states are equal (I-17). Two that differ are said by each replica that
//! sees them. What follows is decided by the voters: a replica that differs from a majority has diverged and takes no
//! part; one that agrees with a majority goes on; where no majority agrees, the replicas that differ do not lead (ADR
//! 17). A replica that was removed while it was away never learns so from the log, so the others tell it here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_lifecycle::command::{Command, Origin, ReplicaOperation};
use muster_lifecycle::replica::{ReplicaId, ReplicaTrouble};
use muster_lifecycle::table::Digest;
use openraft::async_runtime::WatchReceiver;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_128;

use crate::membership::standing::{Dispute, Exclusion};
use crate::replica::Replica;
use crate::replication::hello::HelloAnswer;
use crate::storage::persisted::{self, MembershipRecord};
use crate::types::StoredMembership;

const AUDIT_INTERVAL: Duration = Duration::from_secs(5);
/// The pause between two audits when replicas start in quick succession.
const AUDIT_PAUSE: Duration = Duration::from_millis(100);

/// This replica was removed from the cluster and must stop.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("replica {id} was removed from the cluster; ids are never reused, add this machine under a new id")]
pub struct Retired {
    pub id: ReplicaId,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "this replica's state differs from the majority's at log index {index} (digest {ours} here, {theirs} there): it \
     has diverged and takes no part any more; stop it, run `muster member remove` for its id and add it anew under \
     another id"
)]
pub struct Diverged {
    pub index: u64,
    pub ours: Digest,
    pub theirs: Digest,
}

/// The members of the cluster as a replica has them, and where in the log they were set. At an equal place they are
/// equal, unless the replicas were restored with different members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MembersClaim {
    pub term: u64,
    /// One more than the log index; 0: there are no members yet.
    pub index: u64,
    pub digest: Digest,
}

/// What one replica says about its state.
#[derive(Debug, Clone, Default)]
struct Claims {
    digests: BTreeMap<u64, Digest>,
    members: MembersClaim,
    applied: u64,
}

/// Two replicas whose states differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    pub pair: (ReplicaId, ReplicaId),
    pub index: u64,
}

/// The result of one audit.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    mismatches: BTreeSet<Mismatch>,
    diverged: Option<Diverged>,
    dispute: Option<Dispute>,
}

impl Replica {
    /// Completes when this replica was removed from the cluster; `None` when `stop` is cancelled.
    pub async fn audit(&self, stop: &CancellationToken) -> Option<Retired> {
        let mut reported = BTreeSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(AUDIT_INTERVAL) => {}
                () = self.looks_again.notified() => tokio::time::sleep(AUDIT_PAUSE).await,
            }
            let reached = self.examine().await;
            if reached.values().any(|other| other.retired) {
                return Some(Retired { id: self.id() });
            }
            self.report(&reached, &mut reported).await;
        }
    }

    /// Compares this replica with all others that answer, and draws the conclusions.
    pub(crate) async fn examine(&self) -> BTreeMap<ReplicaId, HelloAnswer> {
        let reached: BTreeMap<_, _> =
            self.reach_members().await.into_iter().filter_map(|(id, answer)| Some((id, answer.ok()?))).collect();
        let members = self.members();
        let voters = members.iter().filter(|(_, member)| member.voter).map(|(id, _)| *id).collect();
        let claims = reached.iter().map(|(id, answer)| (*id, Claims::from(answer))).collect();
        let findings = judge(self.id(), &self.claims(), &claims, &voters);
        let standing = self.standing();
        if let Some(diverged) = findings.diverged {
            if self.leader() == Some(self.id()) {
                self.hand_over(None).await;
            }
            standing.exclude(Exclusion::Diverged(diverged));
        }
        standing.set_dispute(findings.dispute);
        standing.set_mismatches(findings.mismatches);
        reached
    }

    fn claims(&self) -> Claims {
        let current = self.current();
        let members = MembersClaim::of(&self.raft.metrics().borrow_watched().membership_config);
        let applied = current.applied_index();
        let now = current.applied.map(|_| (applied, current.state.digest()));
        Claims { digests: self.feed().digests().into_iter().chain(now).collect(), members, applied }
    }

    /// As the leader, tells operators of replicas in trouble by an event: once for each trouble.
    async fn report(
        &self,
        reached: &BTreeMap<ReplicaId, HelloAnswer>,
        reported: &mut BTreeSet<(ReplicaId, ReplicaTrouble)>,
    ) {
        if self.leader() != Some(self.id()) {
            return;
        }
        let own = self.standing().trouble().map(|(trouble, _)| (self.id(), trouble));
        let said = reached.iter().filter_map(|(id, answer)| Some((*id, answer.trouble.as_ref()?.0)));
        let distrusted = self.distrusted().into_keys().map(|id| (id, ReplicaTrouble::WentBack));
        let troubles: BTreeSet<_> = own.into_iter().chain(said).chain(distrusted).collect();
        for (id, trouble) in troubles {
            let operation = ReplicaOperation::ReportReplica { id, trouble };
            let command =
                Command { origin: Origin::Replica { id: self.id() }, request: None, operation: operation.into() };
            if !reported.contains(&(id, trouble)) && self.propose(command).await.is_ok() {
                reported.insert((id, trouble));
            }
        }
    }
}

// === impl MembersClaim ===

impl MembersClaim {
    pub(crate) fn of(stored: &StoredMembership) -> Self {
        let Some(at) = stored.log_id() else { return Self::default() };
        // Members consist of encodable parts; an empty encoding would agree with no other.
        let encoded = persisted::encode(&MembershipRecord::from(stored.membership())).unwrap_or_default();
        Self { term: at.leader_id.term, index: at.index + 1, digest: Digest(xxh3_128(&encoded)) }
    }

    fn contradicts(&self, other: &Self) -> bool {
        (self.term, self.index) == (other.term, other.index) && self.digest != other.digest
    }
}

// === impl Claims ===

impl From<&HelloAnswer> for Claims {
    fn from(answer: &HelloAnswer) -> Self {
        Self { digests: answer.digests.iter().copied().collect(), members: answer.members, applied: answer.applied }
    }
}

impl Claims {
    /// The last index at which both states are known, and whether they are equal there.
    fn compare(&self, other: &Self) -> Option<(u64, bool)> {
        let common = self.digests.iter().rev().find_map(|(index, ours)| Some((index, ours, other.digests.get(index)?)));
        common.map(|(index, ours, theirs)| (*index, ours == theirs))
    }
}

/// What follows for `me` from what the others say.
fn judge(me: ReplicaId, ours: &Claims, others: &BTreeMap<ReplicaId, Claims>, voters: &BTreeSet<ReplicaId>) -> Findings {
    let all: Vec<_> = others.iter().map(|(id, claims)| (*id, claims)).chain([(me, ours)]).collect();
    let mut findings = Findings::default();
    for (at, (one, claims)) in all.iter().enumerate() {
        for (other, others) in &all[at + 1..] {
            if let Some((index, false)) = claims.compare(others) {
                let pair = ((*one).min(*other), (*one).max(*other));
                findings.mismatches.insert(Mismatch { pair, index });
            }
        }
    }
    let majority = |count: usize| count > voters.len() / 2;
    let voting = || others.iter().filter(|(id, _)| voters.contains(id));
    findings.diverged = diverged(ours, voting().map(|(_, claims)| claims), majority);
    let mine = usize::from(voters.contains(&me));
    let same_members = voting().filter(|(_, claims)| claims.members == ours.members).count() + mine;
    if others.values().any(|claims| ours.members.contradicts(&claims.members)) && !majority(same_members) {
        let text = other_members(me);
        findings.dispute = Some(Dispute { text, may_lead: false, may_vote: false });
        return findings;
    }
    let agreeing = voting().filter(|(_, claims)| matches!(ours.compare(claims), Some((_, true)))).count() + mine;
    let against = findings.mismatches.iter().find(|mismatch| mismatch.pair.0 == me || mismatch.pair.1 == me);
    if let Some(mismatch) = against.filter(|_| !majority(agreeing) && findings.diverged.is_none()) {
        // A voter that can be reached and has not come so far will settle it, if a leader sends it the log.
        let may_lead = voting().any(|(_, claims)| ours.compare(claims).is_none() && claims.applied < ours.applied);
        findings.dispute = Some(Dispute { text: unsettled(mismatch), may_lead, may_vote: true });
    }
    findings
}

/// Diverged, if at some index a majority of the voters agrees on a digest that this replica does not have.
fn diverged<'a>(
    ours: &Claims,
    voters: impl Iterator<Item = &'a Claims> + Clone,
    majority: impl Fn(usize) -> bool,
) -> Option<Diverged> {
    ours.digests.iter().rev().find_map(|(index, mine)| {
        let mut votes: BTreeMap<Digest, usize> = BTreeMap::new();
        for theirs in voters.clone().filter_map(|claims| claims.digests.get(index)) {
            *votes.entry(*theirs).or_default() += 1;
        }
        let against = votes.into_iter().find(|(theirs, count)| theirs != mine && majority(*count));
        against.map(|(theirs, _)| Diverged { index: *index, ours: *mine, theirs })
    })
}

fn unsettled(mismatch: &Mismatch) -> String {
    let Mismatch { pair: (one, other), index } = mismatch;
    format!(
        "the states of replicas {one} and {other} differ at log index {index}, and no majority of the voters agrees: \
         neither of them leads. Start the other replicas: a majority then settles which is right. If none is left, \
         restore the newest backup (`muster restore`)"
    )
}

fn other_members(me: ReplicaId) -> String {
    format!(
        "replica {me} begins with other members than another replica, at the same place in the log: they were restored \
         with different `initial_members`. It neither votes nor leads. Give all replicas the same `initial_members` and \
         restore anew"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(digests: &[(u64, u128)]) -> Claims {
        let applied = digests.last().map_or(0, |(index, _)| *index);
        let digests = digests.iter().map(|(index, digest)| (*index, Digest(*digest))).collect();
        Claims { digests, applied, members: MembersClaim::default() }
    }

    fn judged(ours: &[(u64, u128)], others: &[(u64, &[(u64, u128)])]) -> Findings {
        let others = others.iter().map(|(id, digests)| (ReplicaId(*id), claims(digests))).collect();
        judge(ReplicaId(1), &claims(ours), &others, &[1, 2, 3].map(ReplicaId).into())
    }

    const OURS: &[(u64, u128)] = &[(256, 1), (512, 2)];
    const DIFFERENT: &[(u64, u128)] = &[(256, 1), (512, 9)];

    #[test]
    fn i_17_a_majority_against_this_replica_excludes_it() {
        let findings = judged(OURS, &[(2, DIFFERENT), (3, DIFFERENT)]);
        assert_eq!(findings.diverged, Some(Diverged { index: 512, ours: Digest(2), theirs: Digest(9) }));
        assert_eq!(findings.dispute, None);
    }

    #[test]
    fn i_17_a_replica_that_agrees_with_a_majority_goes_on_and_says_what_it_sees() {
        let findings = judged(OURS, &[(2, OURS), (3, DIFFERENT)]);
        assert_eq!((findings.diverged, findings.dispute), (None, None));
        let pair = |one, other| Mismatch { pair: (ReplicaId(one), ReplicaId(other)), index: 512 };
        assert_eq!(findings.mismatches, [pair(1, 3), pair(2, 3)].into());
    }

    #[test]
    fn i_17_without_a_majority_neither_side_leads() {
        let findings = judged(OURS, &[(2, DIFFERENT)]);
        let dispute = findings.dispute.unwrap();
        assert!(!dispute.may_lead && dispute.may_vote, "{dispute:?}");
        assert!(dispute.text.contains("replicas 1 and 2 differ at log index 512"), "{}", dispute.text);
        let three = judged(OURS, &[(2, DIFFERENT), (3, &[(256, 1), (512, 7)])]);
        assert!(!three.dispute.unwrap().may_lead);
        assert_eq!(three.mismatches.len(), 3);
    }

    #[test]
    fn i_17_a_voter_that_is_behind_settles_it_so_there_may_be_a_leader_until_then() {
        assert!(judged(OURS, &[(2, DIFFERENT), (3, &[(100, 5)])]).dispute.unwrap().may_lead);
        assert!(!judged(OURS, &[(2, DIFFERENT)]).dispute.unwrap().may_lead);
    }

    #[test]
    fn i_17_a_learner_has_no_vote() {
        let findings = judged(OURS, &[(2, OURS), (7, DIFFERENT), (8, DIFFERENT)]);
        assert_eq!((findings.diverged, findings.dispute), (None, None));
        assert_eq!(findings.mismatches.len(), 4);
    }

    #[test]
    fn i_17_two_others_that_differ_are_said_by_a_replica_that_is_no_party() {
        let findings = judged(&[(256, 1)], &[(2, OURS), (3, &[(512, 9)])]);
        assert_eq!((findings.diverged, findings.dispute), (None, None));
        let pair = (ReplicaId(2), ReplicaId(3));
        assert_eq!(findings.mismatches, [Mismatch { pair, index: 512 }].into());
    }

    #[test]
    fn i_15_other_members_at_the_same_place_keep_a_replica_from_voting_unless_a_majority_has_the_same() {
        let with = |members: u128| Claims {
            members: MembersClaim { term: 1, index: 2, digest: Digest(members) },
            ..claims(OURS)
        };
        let voters = [1, 2, 3].map(ReplicaId).into();
        let judged = |others: &[(u64, Claims)]| {
            let others = others.iter().map(|(id, claims)| (ReplicaId(*id), claims.clone())).collect();
            judge(ReplicaId(1), &with(1), &others, &voters).dispute
        };
        assert!(judged(&[(2, with(2))]).is_some_and(|dispute| !dispute.may_vote));
        assert_eq!(judged(&[(2, with(1)), (3, with(2))]), None);
        assert_eq!(judged(&[(2, with(1))]), None);
    }
}
