//! Claims of sessions: which of two sessions of one node goes on (I-14).
//!
//! An agent takes its own session over anywhere and at any time. Another agent under the same name takes it only from
//! a holder that was silent for several beats. A new leader hears of sessions in no particular order, so there the
//! older session of two agents wins. Of two sessions of the same agent the younger one is where the agent is now; the
//! older one is what a replica that was cut off still believes in.
//!
//! An agent that has had no session before, a newcomer, may be a copy of the agent that has one. It gets orders only
//! when the leader knows that no other replica has a session of the node, and until then it gives way to any agent that
//! continues.

use std::time::Duration;

use crate::object::policy::Policy;
use crate::value::replica_id::ReplicaId;

/// A holder that is silent for this many beat intervals no longer holds its session.
const BEATS_MISSED: u32 = 3;

/// One session of a node, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFacts {
    /// The generation of the node's slot. A node that is created anew has a higher one.
    pub generation: u32,
    /// The process of the agent.
    pub instance: u64,
    /// The replica that serves the session.
    pub replica: ReplicaId,
    pub age: Duration,
    /// How long that replica has not heard the node; the longest duration there is if it never did.
    pub silence: Duration,
    /// Its agent has had no session before, and it is not settled that it may have this one.
    pub is_newcomer: bool,
}

/// Another replica, at the moment when a newcomer claims a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherReplica {
    /// It has claimed all its sessions from this leader.
    pub has_claimed_all: bool,
    /// As in [`SessionFacts`].
    pub silence: Duration,
}

/// The decision about a claim on a session that another claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimDecision {
    /// The claim holds the session from now on, and no replica has to be told.
    Granted,
    /// The claim holds the session from now on; the holder's replica must end its own, because the same agent or
    /// another one continues elsewhere.
    TakenOver { by_another: bool },
    /// The holder keeps the session: the same agent has moved on to it, and the claimed session must end.
    Continued,
    /// The holder keeps the session: it is another agent that is alive.
    Held,
    /// The node was deleted and created anew: the claim is about its former life.
    Outdated,
}

/// How long a holder may be silent.
pub fn claim_patience(policy: &Policy) -> Duration {
    Duration::from_millis(policy.beat_interval().0) * BEATS_MISSED
}

/// Whether a newcomer's session is settled: no other replica can still turn out to have one of another agent that would
/// keep it.
pub fn is_settled(others: impl IntoIterator<Item = OtherReplica>, patience: Duration) -> bool {
    others.into_iter().all(|other| other.has_claimed_all || other.silence >= patience)
}

pub fn decide_claim(claim: &SessionFacts, holder: &SessionFacts, patience: Duration) -> ClaimDecision {
    if holder.generation != claim.generation {
        return if holder.generation > claim.generation { ClaimDecision::Outdated } else { ClaimDecision::Granted };
    }
    let by_another = holder.instance != claim.instance;
    let is_elsewhere = holder.replica != claim.replica;
    let (is_older, is_holder_alive) = (claim.age > holder.age, holder.silence < patience);
    let gives_way = holder.is_newcomer && !claim.is_newcomer;
    if by_another && gives_way {
        return if is_elsewhere { ClaimDecision::TakenOver { by_another } } else { ClaimDecision::Granted };
    }
    // A newcomer's age proves nothing: the holder may have had to attach anew.
    let is_older = is_older && (holder.is_newcomer || !claim.is_newcomer);
    if by_another && is_holder_alive && !(is_older && claim.silence < patience) {
        return ClaimDecision::Held;
    }
    match is_elsewhere {
        true if !by_another && is_older && is_holder_alive => ClaimDecision::Continued,
        true => ClaimDecision::TakenOver { by_another },
        false => ClaimDecision::Granted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Instance, replica, age and silence in seconds.
    fn session((instance, replica): (u64, u64), age: u64, silence: u64) -> SessionFacts {
        let (age, silence) = (Duration::from_secs(age), Duration::from_secs(silence));
        SessionFacts { generation: 1, instance, replica: ReplicaId(replica), age, silence, is_newcomer: false }
    }

    #[test]
    fn i_14_a_newcomer_gives_way_to_an_agent_that_continues() {
        let newcomer = |place| SessionFacts { is_newcomer: true, ..session(place, 5, 1) };
        let another = ClaimDecision::TakenOver { by_another: true };
        let continuing = session((7, 1), 0, 99);
        assert_eq!(decide_claim(&continuing, &newcomer((8, 2)), PATIENCE), another);
        assert_eq!(decide_claim(&continuing, &newcomer((8, 1)), PATIENCE), ClaimDecision::Granted);
        assert_eq!(decide_claim(&newcomer((8, 2)), &session((7, 1), 0, 1), PATIENCE), ClaimDecision::Held);
        let second = SessionFacts { is_newcomer: true, ..session((9, 2), 0, 99) };
        assert_eq!(decide_claim(&second, &newcomer((8, 1)), PATIENCE), ClaimDecision::Held, "the first one waits");
    }

    #[test]
    fn i_14_a_newcomer_is_settled_when_no_other_replica_can_have_another_agent() {
        let other = |has_claimed_all, silence| OtherReplica { has_claimed_all, silence: Duration::from_secs(silence) };
        let table = [
            ("every replica has claimed", vec![other(true, 1), other(true, 0)], true),
            ("one that heard the node lately has not", vec![other(true, 1), other(false, 29)], false),
            ("one that has not heard it for long has not", vec![other(false, 30), other(true, 1)], true),
            ("there is no other replica", vec![], true),
        ];
        for (case, others, expected) in table {
            assert_eq!(is_settled(others, PATIENCE), expected, "{case}");
        }
    }

    #[test]
    fn i_14_of_two_sessions_the_right_one_is_kept() {
        let (same, another) =
            (ClaimDecision::TakenOver { by_another: false }, ClaimDecision::TakenOver { by_another: true });
        let (agent_here, agent_there, clone_here, clone_there) = ((7, 1), (7, 2), (8, 1), (8, 2));
        let table = [
            (
                "an agent comes back to its replica",
                session(agent_here, 0, 1),
                session(agent_here, 60, 1),
                ClaimDecision::Granted,
            ),
            ("an agent moves", session(agent_there, 0, 99), session(agent_here, 60, 1), same),
            (
                "an agent moves from where it fell silent",
                session(agent_there, 0, 99),
                session(agent_here, 60, 30),
                same,
            ),
            (
                "a cut-off replica claims what moved on",
                session(agent_there, 60, 1),
                session(agent_here, 5, 1),
                ClaimDecision::Continued,
            ),
            ("what moved on fell silent", session(agent_there, 60, 1), session(agent_here, 5, 30), same),
            ("of equal age the claim wins", session(agent_there, 5, 1), session(agent_here, 5, 1), same),
            (
                "a second agent beside a living one",
                session(clone_there, 0, 99),
                session(agent_here, 60, 29),
                ClaimDecision::Held,
            ),
            (
                "a second agent at the same replica",
                session(clone_here, 0, 99),
                session(agent_here, 60, 29),
                ClaimDecision::Held,
            ),
            ("a second agent beside a silent one", session(clone_there, 0, 99), session(agent_here, 60, 30), another),
            (
                "the same at one replica",
                session(clone_here, 0, 99),
                session(agent_here, 60, 30),
                ClaimDecision::Granted,
            ),
            (
                "a new leader hears of the older one last",
                session(clone_there, 60, 1),
                session(agent_here, 5, 1),
                another,
            ),
            (
                "the older one was not heard recently",
                session(clone_there, 60, 30),
                session(agent_here, 5, 1),
                ClaimDecision::Held,
            ),
            (
                "of equal age the holder stays",
                session(clone_there, 5, 1),
                session(agent_here, 5, 1),
                ClaimDecision::Held,
            ),
        ];
        for (case, claim, holder, expected) in table {
            assert_eq!(decide_claim(&claim, &holder, PATIENCE), expected, "{case}");
        }
    }

    #[test]
    fn a_node_that_was_created_anew_is_another_node() {
        let former = session((7, 1), 60, 1);
        let anew = SessionFacts { generation: 2, ..session((8, 2), 0, 99) };
        assert_eq!(decide_claim(&anew, &former, PATIENCE), ClaimDecision::Granted);
        assert_eq!(decide_claim(&former, &anew, PATIENCE), ClaimDecision::Outdated);
    }

    #[test]
    fn a_holder_may_be_silent_for_three_beats() {
        let policy = Policy::default();
        assert_eq!(claim_patience(&policy).as_millis(), 3 * u128::from(policy.beat_interval().0));
    }
}
