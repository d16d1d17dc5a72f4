//! Who holds which node's session, as the leader knows it (I-14).
//!
//! The table is the leader's own and dies with its term: every replica claims its sessions anew from a new leader, so
//! nothing has to be replicated and nothing can be stale for long. The same agent takes its session over anywhere and
//! at any time; another one under the same name only from a holder that was not heard for several beats. Who comes
//! first to a new leader is chance, so there the older session wins.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::policy::Policy;
use muster_proto::v1;
use muster_pulse::fleet::{Fleet, Origin};
use muster_pulse::table::SLOTS_MAX;
use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;
use muster_raft::types::ReplicaId;
use tonic::Status;

use crate::hearing::Hearing;
use crate::pulse_service::Claims;

/// Claims, and releases, in one request.
pub(super) const CLAIMS_MAX: usize = 1_024;

/// A holder that was not heard for so many beat intervals no longer holds anything.
const BEATS_MISSED: u32 = 3;

/// Taken over sessions that a replica has not been told of; the oldest are forgotten, and end by themselves.
const UNTOLD_MAX: usize = 65_536;

/// How much of an address is kept.
const REMOTE_MAX: usize = 64;

/// The claims that this replica decides while it leads.
pub(super) struct Court {
    replica: Replica,
    hearing: Hearing,
    term: Mutex<Term>,
}

/// The table of one term.
#[derive(Default)]
struct Term {
    number: u64,
    ledger: Ledger,
}

#[derive(Debug, Default)]
struct Ledger {
    holders: HashMap<u32, Holder>,
    untold: BTreeMap<ReplicaId, VecDeque<v1::TakenOver>>,
}

#[derive(Debug)]
struct Holder {
    slot: u32,
    generation: u32,
    instance: u64,
    replica: ReplicaId,
    number: u64,
    remote: Box<str>,
    claimed: Tick,
    /// When the session began.
    since: Tick,
}

/// What a claim is judged by.
struct Bench<'a> {
    fleet: &'a Fleet,
    now: Tick,
    patience: Duration,
}

/// For how long a holder may be silent.
pub(super) fn patience(policy: &Policy) -> Duration {
    Duration::from_millis(policy.beat_interval().0) * BEATS_MISSED
}

// === impl Court ===

impl Court {
    pub(super) fn new(replica: Replica, hearing: Hearing) -> Self {
        Self { replica, hearing, term: Mutex::default() }
    }

    /// Gives the table's memory back once this replica no longer leads.
    pub(super) fn adjourn_unless_leading(&self) {
        if self.replica.leader() != Some(self.replica.id()) {
            *self.term() = Term::default();
        }
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims for Court {
    fn claim(&self, from: ReplicaId, request: v1::ClaimRequest) -> Result<v1::ClaimResponse, Status> {
        let (leader, number) = (self.replica.leader(), self.replica.term());
        if leader != Some(self.replica.id()) {
            return Err(Status::failed_precondition("this replica does not lead: ask the leader who holds a session"));
        }
        if request.claims.len() > CLAIMS_MAX || request.releases.len() > CLAIMS_MAX {
            return Err(Status::invalid_argument(format!("more than {CLAIMS_MAX} claims or releases in one request")));
        }
        let fleet = self.hearing.ear().fleet();
        let patience = patience(self.replica.current().state.policy());
        let bench = Bench { fleet: &fleet, now: self.hearing.tick(), patience };
        let mut term = self.term();
        if term.number != number {
            *term = Term { number, ledger: Ledger::default() };
        }
        Ok(term.ledger.hear(from, &request, &bench))
    }
}

// === impl Ledger ===

impl Ledger {
    fn hear(&mut self, from: ReplicaId, request: &v1::ClaimRequest, bench: &Bench<'_>) -> v1::ClaimResponse {
        for release in &request.releases {
            self.release(from, release);
        }
        let decide = |claim| v1::ClaimVerdict { held_by: self.claim(from, claim, bench).err().unwrap_or_default() };
        let verdicts = request.claims.iter().map(decide).collect();
        let told = self.untold.remove(&from).unwrap_or_default();
        v1::ClaimResponse { verdicts, taken_over: told.into() }
    }

    /// `Err` says who holds the session.
    fn claim(&mut self, from: ReplicaId, claim: &v1::SessionClaim, bench: &Bench<'_>) -> Result<(), String> {
        if claim.slot as usize >= SLOTS_MAX {
            return Err(format!("nobody: there is no slot {}", claim.slot));
        }
        if let Some(holder) = self.holders.get(&claim.slot) {
            if holder.generation > claim.generation {
                return Err("its successor: the node was deleted and created anew".to_owned());
            }
            let same_life = holder.generation == claim.generation;
            let another = holder.instance != claim.instance;
            if same_life && another && !bench.prefers(from, claim, holder) {
                return Err(holder.shown(bench.silence_of(holder)));
            }
            if same_life && holder.replica != from {
                let taken_over = holder.taken_over(from, another);
                let to = holder.replica;
                self.tell(to, taken_over);
            }
        }
        self.holders.insert(claim.slot, Holder::new(from, claim, bench.now));
        Ok(())
    }

    /// Only the holder can let go, and only of what it holds now: its agent may have come back in the meantime.
    fn release(&mut self, from: ReplicaId, claim: &v1::SessionClaim) {
        let holds = |holder: &Holder| {
            let (held, released) = ((holder.generation, holder.number), (claim.generation, claim.number));
            holder.replica == from && held == released
        };
        if self.holders.get(&claim.slot).is_some_and(holds) {
            self.holders.remove(&claim.slot);
        }
    }

    fn tell(&mut self, replica: ReplicaId, taken_over: v1::TakenOver) {
        let untold = self.untold.entry(replica).or_default();
        if untold.len() >= UNTOLD_MAX {
            untold.pop_front();
        }
        untold.push_back(taken_over);
    }
}

// === impl Holder ===

impl Holder {
    fn new(replica: ReplicaId, claim: &v1::SessionClaim, claimed: Tick) -> Self {
        let remote = &claim.remote[..claim.remote.floor_char_boundary(REMOTE_MAX)];
        let v1::SessionClaim { slot, generation, instance, number, .. } = *claim;
        let since = claimed.before(Duration::from_millis(claim.held_ms));
        Self { slot, generation, instance, replica, number, remote: remote.into(), claimed, since }
    }

    fn slot(&self) -> Slot {
        Slot { index: self.slot, generation: self.generation }
    }

    fn taken_over(&self, replica: ReplicaId, by_another: bool) -> v1::TakenOver {
        let Self { slot, generation, instance, .. } = *self;
        v1::TakenOver { slot, generation, instance, replica, by_another }
    }

    fn shown(&self, silence: Duration) -> String {
        shown(self.instance, (self.replica, &self.remote), silence)
    }
}

/// Who has a session, for those who want it too. The instance is cut: enough to find it in a log.
pub(super) fn shown(instance: u64, (replica, remote): (ReplicaId, &str), silence: Duration) -> String {
    let (instance, seconds) = (instance >> 48, silence.as_secs_f64());
    format!("another instance ({instance:04x}…) at replica {replica} from {remote}, last heard {seconds:.1} s ago")
}

// === impl Bench ===

impl Bench<'_> {
    /// Whether `claim` goes before a holder that is another instance.
    fn prefers(&self, from: ReplicaId, claim: &v1::SessionClaim, holder: &Holder) -> bool {
        if self.silence_of(holder) >= self.patience {
            return true;
        }
        let began = self.now.before(Duration::from_millis(claim.held_ms));
        let heard = self.heard(from, holder.slot()).is_some_and(|heard| self.now.elapsed_since(heard) < self.patience);
        began < holder.since && heard
    }

    /// For how long the holder was not heard through its own replica; a claim is a sign of life too.
    fn silence_of(&self, holder: &Holder) -> Duration {
        let heard = self.heard(holder.replica, holder.slot());
        self.now.elapsed_since(heard.map_or(holder.claimed, |heard| heard.max(holder.claimed)))
    }

    fn heard(&self, through: ReplicaId, slot: Slot) -> Option<Tick> {
        let (_, table) = self.fleet.tables().find(|(origin, _)| *origin == Origin(through))?;
        table.heard(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const FIRST: u64 = 0xab12_0000_0000_0001;
    const SECOND: u64 = 0xcd34_0000_0000_0002;

    #[test]
    fn i_14_another_instance_is_refused_and_told_by_whom() {
        let mut rig = Rig::new();
        assert_eq!(rig.claim(2, FIRST, 0), "");
        rig.beat(2, 8_000);
        assert_eq!(
            rig.claim(3, SECOND, 9_200),
            "another instance (ab12…) at replica 2 from 10.0.0.7:4711, last heard 1.2 s ago"
        );
    }

    #[test]
    fn the_same_instance_takes_over_and_its_old_replica_is_told_once() {
        let mut rig = Rig::new();
        rig.claim(2, FIRST, 0);
        assert_eq!(rig.claim(2, FIRST, 50), "");
        assert_eq!(rig.poll(2, 60), [], "on the same replica there is nothing to tell");
        assert_eq!(rig.claim(3, FIRST, 100), "");
        let told = rig.poll(2, 200);
        let taken_over = v1::TakenOver { slot: 5, generation: 1, instance: FIRST, replica: 3, by_another: false };
        assert_eq!(told, [taken_over]);
        assert_eq!(rig.poll(2, 300), []);
        assert_eq!(rig.poll(3, 300), []);
    }

    #[test]
    fn a_holder_silent_for_three_beats_is_displaced() {
        let mut rig = Rig::new();
        rig.claim(2, FIRST, 0);
        rig.beat(2, 10_000);
        assert_ne!(rig.claim(3, SECOND, 39_999), "");
        assert_eq!(rig.claim(3, SECOND, 40_000), "");
        let told = rig.poll(2, 40_100);
        assert!(told[0].by_another && told[0].instance == FIRST && told[0].replica == 3);
        assert_ne!(rig.claim(2, FIRST, 40_200), "", "the newcomer holds it now");
    }

    #[test]
    fn what_is_heard_elsewhere_does_not_keep_a_holder() {
        let mut rig = Rig::new();
        rig.claim(2, FIRST, 0);
        rig.beat(1, 29_000);
        assert_eq!(rig.claim(3, SECOND, 30_000), "");
    }

    #[test]
    fn before_a_new_leader_the_older_session_wins() {
        let mut rig = Rig::new();
        rig.claim(3, SECOND, 1_000);
        rig.held_ms = 60_000;
        assert_ne!(rig.claim(2, FIRST, 1_200), "", "one that was not heard of late is no better than a newcomer");
        rig.beat(2, 1_100);
        assert_eq!(rig.claim(2, FIRST, 1_200), "");
        let told = rig.poll(3, 1_300);
        assert!(told[0].by_another && told[0].instance == SECOND && told[0].replica == 2);
        rig.held_ms = 300;
        rig.beat(3, 1_300);
        assert_ne!(rig.claim(3, SECOND, 1_300), "", "and the younger does not come back");
    }

    #[test]
    fn only_the_holder_releases() {
        let mut rig = Rig::new();
        rig.claim(2, FIRST, 0);
        rig.release(3, FIRST);
        rig.release(2, SECOND);
        assert_ne!(rig.claim(3, SECOND, 100), "");
        rig.number = 2;
        rig.claim(2, FIRST, 150);
        rig.number = 1;
        rig.release(2, FIRST);
        assert_ne!(rig.claim(3, SECOND, 160), "", "that was the release of an earlier session");
        rig.number = 2;
        rig.release(2, FIRST);
        assert_eq!(rig.claim(3, SECOND, 200), "");
    }

    #[test]
    fn a_new_generation_is_another_node() {
        let mut rig = Rig::new();
        rig.claim(2, FIRST, 0);
        rig.generation = 2;
        assert_eq!(rig.claim(3, SECOND, 100), "");
        assert_eq!(rig.poll(2, 150), [], "its node is gone, which it hears from the state");
        rig.generation = 1;
        assert_eq!(rig.claim(2, FIRST, 200), "its successor: the node was deleted and created anew");
    }

    #[test]
    fn strange_claims_are_bounded() {
        let mut rig = Rig::new();
        let long = v1::SessionClaim { remote: "ä".repeat(500), ..rig.session(FIRST) };
        let fleet = rig.fleet.clone();
        let bench = Bench { fleet: &fleet, now: at(0), patience: PATIENCE };
        rig.ledger.claim(2, &long, &bench).unwrap();
        assert!(rig.ledger.holders[&5].remote.len() <= REMOTE_MAX);
        let beyond = v1::SessionClaim { slot: u32::MAX, ..rig.session(FIRST) };
        assert!(rig.ledger.claim(2, &beyond, &bench).is_err());
    }

    struct Rig {
        ledger: Ledger,
        fleet: Fleet,
        generation: u32,
        number: u64,
        held_ms: u64,
    }

    impl Rig {
        fn new() -> Self {
            let mut fleet = Fleet::new(Origin(1));
            for peer in [2, 3] {
                fleet.admit(Origin(peer)).unwrap();
            }
            Self { ledger: Ledger::default(), fleet, generation: 1, number: 1, held_ms: 0 }
        }

        fn session(&self, instance: u64) -> v1::SessionClaim {
            let remote = "10.0.0.7:4711".to_owned();
            // Sessions of two instances are never the same.
            let number = self.number ^ instance;
            v1::SessionClaim { slot: 5, generation: self.generation, instance, remote, number, held_ms: self.held_ms }
        }

        fn hear(&mut self, from: ReplicaId, request: &v1::ClaimRequest, millis: u64) -> v1::ClaimResponse {
            let bench = Bench { fleet: &self.fleet, now: at(millis), patience: PATIENCE };
            self.ledger.hear(from, request, &bench)
        }

        fn claim(&mut self, from: ReplicaId, instance: u64, millis: u64) -> String {
            let claims = vec![self.session(instance)];
            let mut response = self.hear(from, &v1::ClaimRequest { claims, ..Default::default() }, millis);
            response.verdicts.remove(0).held_by
        }

        fn release(&mut self, from: ReplicaId, instance: u64) {
            let releases = vec![self.session(instance)];
            self.hear(from, &v1::ClaimRequest { releases, ..Default::default() }, 0);
        }

        fn poll(&mut self, from: ReplicaId, millis: u64) -> Vec<v1::TakenOver> {
            self.hear(from, &v1::ClaimRequest::default(), millis).taken_over
        }

        fn beat(&mut self, through: u64, millis: u64) {
            let slot = Slot { index: 5, generation: self.generation };
            let (_, table) = self.fleet.tables().find(|(origin, _)| *origin == Origin(through)).unwrap();
            let _ = table.beat(slot, at(millis));
        }
    }

    fn at(millis: u64) -> Tick {
        Tick::since_boot(Duration::from_millis(millis))
    }
}
