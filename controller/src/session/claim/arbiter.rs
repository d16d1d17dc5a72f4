//! Who holds which node's session, as the leader knows it (I-14).
//!
//! The table is the leader's own and dies with its term: every replica claims its sessions anew from a new leader, so
//! nothing has to be replicated and nothing can be stale for long. The same agent takes its session over anywhere and
//! at any time; another one under the same name only from a holder that was not heard for several beats. Who comes
//! first to a new leader is chance, so there the older session wins; but of two sessions of the same agent the younger
//! one is where it is now, and the older what a replica that was cut off still believes in.

#[cfg(test)]
mod tests;
mod untold;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::table::SLOTS_MAX;
use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;
use tonic::Status;

use crate::hearing::Hearing;
use crate::pulse_service::Claims;

use self::untold::Untold;

/// Claims, and releases, in one request.
pub(crate) const CLAIMS_MAX: usize = 1_024;

/// A holder that was not heard for so many beat intervals no longer holds anything.
const BEATS_MISSED: u32 = 3;

/// How much of an address is kept.
const REMOTE_MAX: usize = 64;

/// The claims that this replica decides while it leads.
pub(crate) struct Court {
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
    untold: Untold,
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
    tables: &'a PulseTables,
    now: Tick,
    patience: Duration,
}

/// For how long a holder may be silent.
pub(crate) fn patience(policy: &Policy) -> Duration {
    Duration::from_millis(policy.beat_interval().0) * BEATS_MISSED
}

// === impl Court ===

impl Court {
    pub(crate) fn new(replica: Replica, hearing: Hearing) -> Self {
        Self { replica, hearing, term: Mutex::default() }
    }

    /// Gives the table's memory back once this replica no longer leads.
    pub(crate) fn adjourn_unless_leading(&self) {
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
        let tables = self.hearing.pulses().tables();
        let patience = patience(self.replica.current().state.policy());
        let bench = Bench { tables: &tables, now: self.hearing.tick(), patience };
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
        v1::ClaimResponse { verdicts, taken_over: self.untold.of(from) }
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
            if same_life && !another && holder.replica != from && bench.has_moved_on(claim, holder) {
                // Not refused, for the agent has its session: whoever still holds the former one is told where.
                self.untold.add(from, holder.taken_over(holder.replica, false));
                return Ok(());
            }
            if same_life && holder.replica != from {
                self.untold.add(holder.replica, holder.taken_over(from, another));
            }
        }
        self.untold.forget(from, claim.slot);
        self.holders.insert(claim.slot, Holder::new(from, claim, bench.now));
        Ok(())
    }

    /// Only the holder can let go, and only of what it holds now: its agent may have come back in the meantime. Whoever
    /// lets go of what was taken over knows that it was.
    fn release(&mut self, from: ReplicaId, claim: &v1::SessionClaim) {
        self.untold.released(from, claim);
        let holds = |holder: &Holder| {
            let (held, released) = ((holder.generation, holder.number), (claim.generation, claim.number));
            holder.replica == from && held == released
        };
        if self.holders.get(&claim.slot).is_some_and(holds) {
            self.holders.remove(&claim.slot);
        }
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
        v1::TakenOver { slot, generation, instance, replica: replica.0, by_another }
    }

    fn shown(&self, silence: Duration) -> String {
        shown(self.instance, (self.replica, &self.remote), silence)
    }
}

/// Who has a session, for those who want it too. The instance is cut: enough to find it in a log.
pub(crate) fn shown(instance: u64, (replica, remote): (ReplicaId, &str), silence: Duration) -> String {
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

    /// Whether the same agent's session with `holder` is younger than the claimed one, and alive.
    fn has_moved_on(&self, claim: &v1::SessionClaim, holder: &Holder) -> bool {
        let began = self.now.before(Duration::from_millis(claim.held_ms));
        began < holder.since && self.silence_of(holder) < self.patience
    }

    /// For how long the holder was not heard through its own replica; a claim is a sign of life too.
    fn silence_of(&self, holder: &Holder) -> Duration {
        let heard = self.heard(holder.replica, holder.slot());
        self.now.elapsed_since(heard.map_or(holder.claimed, |heard| heard.max(holder.claimed)))
    }

    fn heard(&self, through: ReplicaId, slot: Slot) -> Option<Tick> {
        let (_, table) = self.tables.iter().find(|(replica, _)| *replica == through)?;
        table.heard(slot)
    }
}
