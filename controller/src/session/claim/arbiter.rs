//! The leader's arbiter of claims: which replica holds the session of which node (I-14).
//!
//! The table is the leader's own and ends with its term: every replica claims its sessions anew from a new leader. So
//! nothing has to be replicated, and nothing is outdated for long. Which of two sessions goes on is decided by
//! [`decide_claim`].

mod take_overs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::claim::{ClaimDecision, OtherReplica, SessionFacts, claim_patience, decide_claim, is_settled};
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::table::SLOTS_MAX;
use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;
use tonic::Status;

use crate::hearing::Hearing;
use crate::hearing::service::Claims;

use self::take_overs::TakeOvers;

/// Claims, and releases, in one request.
pub(crate) const CLAIMS_MAX: usize = 1_024;

/// How much of an address is kept.
const REMOTE_MAX: usize = 64;

/// Decides claims while this replica leads.
pub(crate) struct ClaimArbiter {
    replica: Replica,
    hearing: Hearing,
    table: Mutex<TermTable>,
}

/// The table of one term.
#[derive(Default)]
struct TermTable {
    term: u64,
    claims: ClaimTable,
}

#[derive(Debug, Default)]
struct ClaimTable {
    holders: HashMap<u32, Holder>,
    take_overs: TakeOvers,
    /// The replicas that have claimed all their sessions.
    complete: BTreeSet<ReplicaId>,
}

/// The session that a node has.
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
    /// As in [`SessionFacts`].
    is_newcomer: bool,
}

/// Everything besides the table that a claim is decided by.
struct ClaimContext<'a> {
    tables: &'a PulseTables,
    now: Tick,
    patience: Duration,
    /// The replicas that have not told this one yet what they heard, since it started.
    untold: BTreeSet<ReplicaId>,
}

// === impl ClaimArbiter ===

impl ClaimArbiter {
    pub(crate) fn new(replica: Replica, hearing: Hearing) -> Self {
        Self { replica, hearing, table: Mutex::default() }
    }

    /// Gives the table's memory back once this replica no longer leads.
    pub(crate) fn clear_unless_leading(&self) {
        if self.replica.leader() != Some(self.replica.id()) {
            *self.table() = TermTable::default();
        }
    }

    fn untold(&self, tables: &PulseTables) -> BTreeSet<ReplicaId> {
        let blindness = self.hearing.pulses().blindness();
        let peers = tables.iter().map(|(replica, _)| replica).filter(|replica| *replica != self.replica.id());
        peers.filter(|peer| blindness.last_digest(*peer).is_none()).collect()
    }

    fn table(&self) -> MutexGuard<'_, TermTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims for ClaimArbiter {
    fn claim(&self, from: ReplicaId, request: v1::ClaimRequest) -> Result<v1::ClaimResponse, Status> {
        let (leader, term) = (self.replica.leader(), self.replica.term());
        if leader != Some(self.replica.id()) {
            return Err(Status::failed_precondition("this replica does not lead: ask the leader who holds a session"));
        }
        if request.claims.len() > CLAIMS_MAX || request.releases.len() > CLAIMS_MAX {
            return Err(Status::invalid_argument(format!("more than {CLAIMS_MAX} claims or releases in one request")));
        }
        let tables = self.hearing.pulses().tables();
        let patience = claim_patience(self.replica.current().state.policy());
        let context =
            ClaimContext { tables: &tables, now: self.hearing.tick(), patience, untold: self.untold(&tables) };
        let mut table = self.table();
        table.begin(term);
        Ok(table.claims.answer(from, &request, &context))
    }
}

// === impl TermTable ===

impl TermTable {
    /// Grants of another term no longer count.
    fn begin(&mut self, term: u64) {
        if self.term != term {
            *self = Self { term, claims: ClaimTable::default() };
        }
    }
}

// === impl ClaimTable ===

impl ClaimTable {
    fn answer(&mut self, from: ReplicaId, request: &v1::ClaimRequest, context: &ClaimContext<'_>) -> v1::ClaimResponse {
        for release in &request.releases {
            self.release(from, release);
        }
        let decide = |claim| match self.claim(from, claim, context) {
            Ok(unsettled) => v1::ClaimAnswer { held_by: String::new(), unsettled },
            Err(held_by) => v1::ClaimAnswer { held_by, unsettled: false },
        };
        let answers = request.claims.iter().map(decide).collect();
        match request.all_claimed {
            true => self.complete.insert(from),
            false => self.complete.remove(&from),
        };
        v1::ClaimResponse { answers, taken_over: self.take_overs.of(from) }
    }

    /// Whether the session is a newcomer's that is not settled. `Err` describes the session that the node has.
    fn claim(&mut self, from: ReplicaId, claim: &v1::SessionClaim, context: &ClaimContext<'_>) -> Result<bool, String> {
        if claim.slot as usize >= SLOTS_MAX {
            return Err(format!("no agent: there is no slot {}", claim.slot));
        }
        if let Some(holder) = self.holders.get(&claim.slot) {
            let claimed = context.facts_of_claim(from, claim);
            match decide_claim(&claimed, &context.facts_of_holder(holder), context.patience) {
                ClaimDecision::Granted => {}
                ClaimDecision::TakenOver { by_another } => {
                    self.take_overs.add(holder.replica, holder.taken_over(from, by_another));
                }
                // Not refused, because the agent has its session: the replica with the former session learns where it
                // continues.
                ClaimDecision::Continued => {
                    self.take_overs.add(from, holder.taken_over(holder.replica, false));
                    return Ok(false);
                }
                ClaimDecision::Held => return Err(holder.shown(context.silence_of(holder))),
                ClaimDecision::Outdated => {
                    return Err("its successor: the node was deleted and created anew".to_owned());
                }
            }
        }
        self.take_overs.forget(from, claim.slot);
        let is_newcomer = claim.newcomer && !self.is_settled(from, claim, context);
        self.holders.insert(claim.slot, Holder { is_newcomer, ..Holder::new(from, claim, context.now) });
        Ok(is_newcomer)
    }

    /// The asking replica knows its own agents.
    fn is_settled(&self, from: ReplicaId, claim: &v1::SessionClaim, context: &ClaimContext<'_>) -> bool {
        let slot = Slot { index: claim.slot, generation: claim.generation };
        let others = context.tables.iter().map(|(replica, _)| replica).filter(|replica| *replica != from);
        let others = others.map(|replica| OtherReplica {
            has_claimed_all: self.complete.contains(&replica),
            silence: context.silence_elsewhere(replica, slot),
        });
        is_settled(others, context.patience)
    }

    /// Only the holder can release a session, and only the one it holds now: its agent may have come back in the
    /// meantime. A replica that releases a session that was taken over knows that it was.
    fn release(&mut self, from: ReplicaId, claim: &v1::SessionClaim) {
        self.take_overs.released(from, claim);
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
        let is_newcomer = claim.newcomer;
        Self { slot, generation, instance, replica, number, remote: remote.into(), claimed, since, is_newcomer }
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

/// A session, described to an agent that wants it too. The instance is cut: enough to find it in a log.
pub(crate) fn shown(instance: u64, (replica, remote): (ReplicaId, &str), silence: Duration) -> String {
    let (instance, seconds) = (instance >> 48, silence.as_secs_f64());
    format!("another instance ({instance:04x}…) at replica {replica} from {remote}, last heard {seconds:.1} s ago")
}

// === impl ClaimContext ===

impl ClaimContext<'_> {
    fn facts_of_claim(&self, from: ReplicaId, claim: &v1::SessionClaim) -> SessionFacts {
        let v1::SessionClaim { slot: index, generation, instance, held_ms, .. } = *claim;
        let began = self.now.before(Duration::from_millis(held_ms));
        let silence = self.silence(from, Slot { index, generation });
        SessionFacts {
            generation,
            instance,
            replica: from,
            age: self.now.elapsed_since(began),
            silence,
            is_newcomer: claim.newcomer,
        }
    }

    fn facts_of_holder(&self, holder: &Holder) -> SessionFacts {
        SessionFacts {
            generation: holder.generation,
            instance: holder.instance,
            replica: holder.replica,
            age: self.now.elapsed_since(holder.since),
            silence: self.silence_of(holder),
            is_newcomer: holder.is_newcomer,
        }
    }

    /// How long the holder was not heard through its own replica; a claim is a sign of life too.
    fn silence_of(&self, holder: &Holder) -> Duration {
        let heard = self.heard(holder.replica, holder.slot());
        self.now.elapsed_since(heard.map_or(holder.claimed, |heard| heard.max(holder.claimed)))
    }

    fn silence(&self, through: ReplicaId, slot: Slot) -> Duration {
        self.heard(through, slot).map_or(Duration::MAX, |heard| self.now.elapsed_since(heard))
    }

    /// A replica that has not told what it heard may have heard the node at any time.
    fn silence_elsewhere(&self, replica: ReplicaId, slot: Slot) -> Duration {
        match self.untold.contains(&replica) {
            true => self.now.elapsed_since(Tick::BOOT),
            false => self.silence(replica, slot),
        }
    }

    fn heard(&self, through: ReplicaId, slot: Slot) -> Option<Tick> {
        let (_, table) = self.tables.iter().find(|(replica, _)| *replica == through)?;
        table.heard(slot)
    }
}
