//! Contact with the leader: whether this replica reaches one.
//!
//! A leader is in contact with itself while a quorum acknowledges it. A follower is in contact while it knows the
//! leader, pulls its digests, and the leader takes what this replica heard: a link that works one way only does not
//! count. The time of the last such evidence decides, so that an ordinary election, which takes a second or two, does
//! not make every replica send its agents away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::hearing::Hearing;

/// Contact counts as lost when there was no evidence of it for so long.
pub const CONTACT_LOST: Duration = Duration::from_secs(3);

const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// Whether this replica is in contact with the leader. Clones share it.
#[derive(Clone)]
pub struct Contact(Arc<SharedContact>);

struct SharedContact {
    hearing: Hearing,
    evidence: Mutex<ContactEvidence>,
    in_contact: watch::Sender<bool>,
}

/// The role of this replica at one look, with its evidence of contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObservedRole {
    Leading {
        since_quorum: Option<Duration>,
    },
    Following {
        last_digest: Option<Tick>,
        /// When the leader last acknowledged what this replica heard.
        last_told: Option<Tick>,
    },
    Leaderless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quorum {
    Heard,
    Lost,
    /// This replica neither leads nor hears from the leader.
    Unknown,
}

/// The evidence of contact so far.
#[derive(Debug)]
struct ContactEvidence {
    began: Tick,
    last: Option<Tick>,
    leading_since: Option<Tick>,
}

// === impl Contact ===

impl Contact {
    pub fn new(hearing: Hearing) -> Self {
        let evidence = Mutex::new(ContactEvidence::new(hearing.tick()));
        Self(Arc::new(SharedContact { hearing, evidence, in_contact: watch::Sender::new(false) }))
    }

    /// Follows the contact to the leader until `stop`; also notices when this replica leads but hears no quorum.
    pub async fn run(self, replica: Replica, stop: CancellationToken) {
        let mut looks = interval(LOOK_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => self.look(&replica),
            }
        }
    }

    /// False from [`CONTACT_LOST`] after the last evidence on, and before the first.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.in_contact.subscribe()
    }

    /// `None` while in contact; else the time since the last evidence, or since this replica began to look for any.
    pub fn lost_for(&self) -> Option<Duration> {
        let now = self.0.hearing.tick();
        self.evidence().lost_for(now)
    }

    fn look(&self, replica: &Replica) {
        let now = self.0.hearing.tick();
        let role = self.observed_role(replica);
        let mut evidence = self.evidence();
        evidence.observe(role, now);
        let (in_contact, quorum) =
            (evidence.lost_for(now).is_none(), evidence.quorum(role, now, replica.election_timeout_max()));
        drop(evidence);
        self.tell_quorum(quorum, now);
        self.publish(in_contact);
    }

    fn observed_role(&self, replica: &Replica) -> ObservedRole {
        match replica.leader() {
            Some(leader) if leader == self.0.hearing.me() => {
                ObservedRole::Leading { since_quorum: replica.since_quorum() }
            }
            Some(leader) => ObservedRole::Following {
                last_digest: self.0.hearing.pulses().blindness().last_digest(leader),
                last_told: self.0.hearing.last_told(leader),
            },
            None => ObservedRole::Leaderless,
        }
    }

    fn tell_quorum(&self, quorum: Quorum, now: Tick) {
        let mut blindness = self.0.hearing.pulses().blindness();
        match quorum {
            Quorum::Heard => blindness.quorum_heard(now),
            Quorum::Lost => blindness.quorum_lost(now),
            Quorum::Unknown => {}
        }
    }

    fn publish(&self, in_contact: bool) {
        let changed = self.0.in_contact.send_if_modified(|known| std::mem::replace(known, in_contact) != in_contact);
        match (changed, in_contact) {
            (true, true) => tracing::info!("in contact with a leader"),
            (true, false) => tracing::warn!("no contact to a leader for {CONTACT_LOST:?}: agents are told to move"),
            (false, _) => {}
        }
    }

    fn evidence(&self) -> MutexGuard<'_, ContactEvidence> {
        self.0.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ContactEvidence ===

impl ContactEvidence {
    fn new(began: Tick) -> Self {
        Self { began, last: None, leading_since: None }
    }

    fn observe(&mut self, role: ObservedRole, now: Tick) {
        let newest = match role {
            ObservedRole::Leading { since_quorum } => since_quorum.map(|since| now.before(since)),
            ObservedRole::Following { last_digest, last_told } => last_digest.zip(last_told).map(|(a, b)| a.min(b)),
            ObservedRole::Leaderless => None,
        };
        self.last = self.last.max(newest);
        self.leading_since = match role {
            ObservedRole::Leading { .. } => self.leading_since.or(Some(now)),
            ObservedRole::Following { .. } | ObservedRole::Leaderless => None,
        };
    }

    fn lost_for(&self, now: Tick) -> Option<Duration> {
        let since = now.elapsed_since(self.last.unwrap_or(self.began));
        (self.last.is_none() || since >= CONTACT_LOST).then_some(since)
    }

    /// A new leader that no quorum has acknowledged yet gets as much time as one that was acknowledged.
    fn quorum(&self, role: ObservedRole, now: Tick, limit: Duration) -> Quorum {
        let silence = match role {
            ObservedRole::Leading { since_quorum } => {
                since_quorum.or_else(|| self.leading_since.map(|since| now.elapsed_since(since)))
            }
            ObservedRole::Following { last_digest, .. } => last_digest.map(|last| now.elapsed_since(last)),
            ObservedRole::Leaderless => None,
        };
        match (role, silence) {
            (_, Some(silence)) if silence <= limit => Quorum::Heard,
            (ObservedRole::Leading { .. }, _) => Quorum::Lost,
            (ObservedRole::Following { .. } | ObservedRole::Leaderless, _) => Quorum::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn a_replica_without_evidence_has_no_contact() {
        let mut evidence = ContactEvidence::new(at(0));
        for role in [ObservedRole::Leaderless, following(None), leading(None)] {
            evidence.observe(role, at(500));
            assert_eq!(evidence.lost_for(at(500)), Some(millis(500)), "{role:?}");
        }
    }

    #[test]
    fn a_leader_is_in_contact_while_its_quorum_acknowledged_within_three_seconds() {
        let mut evidence = ContactEvidence::new(at(0));
        evidence.observe(leading(Some(200)), at(10_000));
        assert_eq!(evidence.lost_for(at(10_000)), None);
        evidence.observe(leading(Some(2_999)), at(12_799));
        assert_eq!(evidence.lost_for(at(12_799)), None);
        evidence.observe(leading(Some(3_000)), at(12_800));
        assert_eq!(evidence.lost_for(at(12_800)), Some(millis(3_000)));
    }

    #[test]
    fn a_follower_is_in_contact_while_it_pulls_from_the_leader() {
        let mut evidence = ContactEvidence::new(at(0));
        evidence.observe(following(Some(9_900)), at(10_000));
        assert_eq!(evidence.lost_for(at(12_899)), None);
        evidence.observe(following(Some(9_900)), at(12_900));
        assert_eq!(evidence.lost_for(at(12_900)), Some(millis(3_000)));
        evidence.observe(following(Some(12_950)), at(13_000));
        assert_eq!(evidence.lost_for(at(13_000)), None);
    }

    #[test]
    fn a_follower_that_knows_no_digest_of_its_new_leader_keeps_the_evidence_of_the_old() {
        let mut evidence = ContactEvidence::new(at(0));
        evidence.observe(following(Some(9_900)), at(10_000));
        evidence.observe(following(None), at(11_000));
        assert_eq!(evidence.lost_for(at(11_000)), None);
        assert_eq!(evidence.lost_for(at(12_900)), Some(millis(3_000)));
    }

    #[test]
    fn an_ordinary_election_loses_no_contact_and_a_long_one_does() {
        let mut evidence = ContactEvidence::new(at(0));
        evidence.observe(following(Some(10_000)), at(10_000));
        evidence.observe(ObservedRole::Leaderless, at(12_000));
        assert_eq!(evidence.lost_for(at(12_000)), None);
        evidence.observe(ObservedRole::Leaderless, at(14_000));
        assert_eq!(evidence.lost_for(at(14_000)), Some(millis(4_000)));
    }

    #[test]
    fn a_leader_without_a_recent_acknowledgement_has_lost_its_quorum() {
        let mut evidence = ContactEvidence::new(at(0));
        let mut judged = |role, now| {
            evidence.observe(role, at(now));
            evidence.quorum(role, at(now), LIMIT)
        };
        assert_eq!(judged(leading(Some(1_000)), 10_000), Quorum::Heard);
        assert_eq!(judged(leading(Some(1_001)), 10_001), Quorum::Lost);
        assert_eq!(judged(leading(Some(10)), 10_200), Quorum::Heard);
    }

    #[test]
    fn a_new_leader_has_time_to_be_acknowledged() {
        let mut evidence = ContactEvidence::new(at(0));
        let mut judged = |role, now| {
            evidence.observe(role, at(now));
            evidence.quorum(role, at(now), LIMIT)
        };
        assert_eq!(judged(leading(None), 10_000), Quorum::Heard);
        assert_eq!(judged(leading(None), 11_001), Quorum::Lost);
        assert_eq!(judged(ObservedRole::Leaderless, 11_100), Quorum::Unknown);
        assert_eq!(judged(leading(None), 11_200), Quorum::Heard, "it leads anew");
    }

    #[test]
    fn a_deposed_leader_hears_a_quorum_again_through_its_successor() {
        let evidence = ContactEvidence::new(at(0));
        assert_eq!(evidence.quorum(following(Some(9_500)), at(10_000), LIMIT), Quorum::Heard);
        assert_eq!(evidence.quorum(following(Some(8_500)), at(10_000), LIMIT), Quorum::Unknown);
        assert_eq!(evidence.quorum(following(None), at(10_000), LIMIT), Quorum::Unknown);
    }

    fn at(since_boot: u64) -> Tick {
        Tick::since_boot(millis(since_boot))
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn leading(since_quorum: Option<u64>) -> ObservedRole {
        ObservedRole::Leading { since_quorum: since_quorum.map(millis) }
    }

    #[test]
    fn a_leader_that_does_not_pull_digests_is_out_of_reach() {
        let mut evidence = ContactEvidence::new(at(0));
        let one_way = |last_told: Option<u64>| ObservedRole::Following {
            last_digest: Some(at(20_000)),
            last_told: last_told.map(at),
        };
        evidence.observe(one_way(None), at(20_000));
        assert_eq!(evidence.lost_for(at(20_000)), Some(millis(20_000)));
        evidence.observe(one_way(Some(18_000)), at(20_000));
        assert_eq!(evidence.lost_for(at(20_000)), None);
        assert_eq!(evidence.lost_for(at(21_000)), Some(millis(3_000)));
    }

    fn following(last: Option<u64>) -> ObservedRole {
        ObservedRole::Following { last_digest: last.map(at), last_told: last.map(at) }
    }
}
