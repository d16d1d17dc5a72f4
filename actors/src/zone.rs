//! The actor of one zone: passes updates on to its shards, and gathers its nodes' transitions into proposals.
//!
//! Few proposals are in flight at a time, so that one is confirmed while the log works on another. Transitions that
//! come up meanwhile are gathered into the next proposal, so that a zone that falls silent costs a few hundred log
//! entries and not one per node.

pub(crate) mod backlog;
pub(crate) mod eviction_queue;
pub(crate) mod transition;

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_lifecycle::clerk_task::OPERATIONS_MAX;
use muster_lifecycle::node::Slot;
use muster_lifecycle::zone::ZoneKey;
use ractor::{ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::cluster::roster::{self, ChunkNumber, ShardRoster, ZoneRoster};
use crate::cluster::update::{FullRoster, ShardUpdate};
use crate::ports::ActorKind;
use crate::proposal::{Permit, ProposalOutcome};
use crate::supervision::children::Children;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::supervision::restart;
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;
use crate::zone::backlog::Backlog;
use crate::zone::transition::Transition;
use crate::{cluster, shard};

/// How many verdicts are confirmed and proposed at once. Verdicts that still wait can be withdrawn.
const VERDICTS_MAX: usize = OPERATIONS_MAX;
const FLIGHTS_MAX: usize = 2;

pub(crate) struct Actor;

/// The transitions that nodes and shards want to have proposed, the newest of each node. A letterbox, because a zone
/// that falls silent finds more in a second than a mailbox can empty one message at a time.
pub(crate) type Found = BTreeMap<Slot, Transition>;

#[derive(Debug)]
pub(crate) enum Msg {
    /// An update is in the letterbox.
    Wake,
    /// A transition was found.
    Found,
    /// Queued behind the rest of the mailbox, so that transitions found meanwhile are proposed together.
    Flush,
    /// The outcomes of a proposal in flight.
    Settled(u64, Vec<ProposalOutcome>),
}

pub(crate) struct Args {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) key: ZoneKey,
    pub(crate) cluster: ActorRef<cluster::Msg>,
    pub(crate) letterbox: Arc<Letterbox<ShardUpdate<ZoneRoster>>>,
}

pub(crate) struct State {
    context: Arc<TreeContext>,
    key: ZoneKey,
    label: String,
    cluster: ActorRef<cluster::Msg>,
    letterbox: Arc<Letterbox<ShardUpdate<ZoneRoster>>>,
    shards: Children<ChunkNumber, shard::Msg, ShardUpdate<ShardRoster>>,
    queue: Children<ZoneKey, eviction_queue::Msg, ()>,
    found: Arc<Letterbox<Found>>,
    waiting: Backlog,
    /// The slots whose transitions are in flight, by the number of the proposal and in its order.
    in_flight: BTreeMap<u64, Vec<Slot>>,
    next_flight: u64,
    _counted: Counted,
}

impl Wake for Msg {
    fn wake() -> Self {
        Self::Wake
    }
}

// === impl Actor ===

impl ractor::Actor for Actor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let Args { context, key, cluster, letterbox } = args;
        let _counted = context.count(ActorKind::Zone);
        // A predecessor that died may have left a count.
        context.found_silent.set(&key, 0);
        myself.cast(Msg::Wake)?;
        Ok(State {
            label: key.to_string(),
            context,
            key,
            cluster,
            letterbox,
            shards: Children::new(),
            queue: Children::new(),
            found: Letterbox::with(Found::new()),
            waiting: Backlog::default(),
            in_flight: BTreeMap::new(),
            next_flight: 0,
            _counted,
        })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.spawn_queue(&myself).await;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.context.probe(ActorKind::Zone, &state.label);
        match message {
            Msg::Wake => state.read(&myself).await,
            Msg::Found => state.gather(&myself),
            Msg::Flush => state.flush(&myself),
            Msg::Settled(flight, outcomes) => state.settled(flight, &outcomes, &myself),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((id, reason)) = restart::death_of(event) else { return Ok(()) };
        if !state.shards.died(id, |_| ActorKind::Shard, &reason) {
            state.queue.died(id, |_| ActorKind::EvictionQueue, &reason);
        }
        Ok(())
    }
}

// === updates ===

impl State {
    async fn read(&mut self, myself: &ActorRef<Msg>) {
        let update = self.letterbox.take();
        let is_round = update.round.is_some();
        if is_round {
            self.rebuild(myself).await;
        }
        for (chunk, part) in self.divided(update) {
            self.deliver(chunk, part, myself).await;
        }
        if let Some(queue) = self.queue.get(&self.key) {
            queue.tell(|()| ());
        }
        if is_round {
            self.flush(myself);
        }
    }

    /// Each shard's share of the update. Shards that have no node on the roster any more are retired.
    fn divided(&mut self, update: ShardUpdate<ZoneRoster>) -> BTreeMap<ChunkNumber, ShardUpdate<ShardRoster>> {
        let mut parts: BTreeMap<ChunkNumber, ShardUpdate<ShardRoster>> = BTreeMap::new();
        if let Some(FullRoster { roster, unsure }) = update.full_roster {
            let roster = roster.unwrap_or_else(|| roster::of_zone(&self.context.ports.source.state(), &self.key));
            let empty: Vec<ChunkNumber> =
                self.shards.keys().filter(|chunk| !roster.contains_key(chunk)).copied().collect();
            empty.iter().for_each(|chunk| self.shards.retire(chunk));
            for (chunk, roster) in roster {
                let call = FullRoster { roster: Some(roster), unsure };
                parts.entry(chunk).or_default().full_roster = Some(call);
            }
        }
        for (chunk, roster) in update.joined {
            parts.entry(chunk).or_default().joined = roster;
        }
        for (slot, name) in update.touched {
            parts.entry(ChunkNumber::of(slot)).or_default().touched.insert(slot, name);
        }
        for (index, (slot, hearing)) in update.hearings {
            parts.entry(ChunkNumber::of(slot)).or_default().hearings.insert(index, (slot, hearing));
        }
        if let Some(round) = update.round {
            for chunk in self.shards.keys() {
                parts.entry(*chunk).or_default();
            }
            parts.values_mut().for_each(|part| part.round = Some(Arc::clone(&round)));
        }
        parts
    }

    /// A shard that is about to be rebuilt reads the state instead.
    async fn deliver(&mut self, chunk: ChunkNumber, part: ShardUpdate<ShardRoster>, myself: &ActorRef<Msg>) {
        match self.shards.get(&chunk) {
            Some(shard) => shard.tell(|letters| letters.absorb(part)),
            None if self.shards.knows(&chunk) => {}
            None => self.spawn_shard(chunk, part, myself).await,
        }
    }
}

// === children ===

impl State {
    async fn rebuild(&mut self, myself: &ActorRef<Msg>) {
        for chunk in self.shards.due(Instant::now()) {
            self.context.ports.observer.restarted(ActorKind::Shard);
            self.spawn_shard(chunk, ShardUpdate::rebuilt(), myself).await;
        }
        if !self.queue.due(Instant::now()).is_empty() {
            self.context.ports.observer.restarted(ActorKind::EvictionQueue);
            self.spawn_queue(myself).await;
        }
    }

    async fn spawn_shard(&mut self, chunk: ChunkNumber, first: ShardUpdate<ShardRoster>, myself: &ActorRef<Msg>) {
        let (context, key) = (Arc::clone(&self.context), self.key.clone());
        let (zone, found) = (myself.clone(), Arc::clone(&self.found));
        let args = |letterbox| shard::Args { context, key, chunk, zone, found, letterbox };
        self.shards.spawn((ActorKind::Shard, chunk), shard::Actor, first, args, myself.get_cell()).await;
    }

    async fn spawn_queue(&mut self, myself: &ActorRef<Msg>) {
        let (context, key, cluster) = (Arc::clone(&self.context), self.key.clone(), self.cluster.clone());
        let args = |letterbox| eviction_queue::Args { context, key, cluster, letterbox };
        let child = (ActorKind::EvictionQueue, self.key.clone());
        self.queue.spawn(child, eviction_queue::Actor, (), args, myself.get_cell()).await;
    }
}

// === transitions ===

impl State {
    fn gather(&mut self, myself: &ActorRef<Msg>) {
        let was_idle = self.waiting.is_empty() && self.in_flight.is_empty();
        self.collect();
        if was_idle && !self.waiting.is_empty() {
            let _ = myself.cast(Msg::Flush);
        }
    }

    fn collect(&mut self) {
        self.found.take().into_values().for_each(|transition| self.waiting.push(transition));
        self.count_silent();
    }

    /// Proposes the transitions that wait and are still valid. Without room they wait for the next round.
    fn flush(&mut self, myself: &ActorRef<Msg>) {
        self.collect();
        while self.in_flight.len() < FLIGHTS_MAX && !self.waiting.is_empty() {
            let context = Arc::clone(&self.context);
            let Some(permit) = context.proposer.permit() else { break };
            let (valid, outdated) = self.next_transitions();
            self.give_back(outdated.into_iter().map(|transition| (transition.slot, false)));
            if !valid.is_empty() {
                self.propose(permit, valid, myself);
            }
        }
        self.count_silent();
    }

    fn propose(&mut self, permit: Permit<'_>, transitions: Vec<Transition>, myself: &ActorRef<Msg>) {
        let (slots, operations) =
            transitions.into_iter().map(|transition| (transition.slot, transition.operation)).unzip();
        let flight = self.next_flight;
        self.next_flight += 1;
        self.in_flight.insert(flight, slots);
        let settled = move |outcomes| Msg::Settled(flight, outcomes);
        permit.propose(operations, true).report_to(myself.clone(), settled);
    }

    fn count_silent(&self) {
        let count = self.waiting.len() + self.in_flight.values().map(Vec::len).sum::<usize>();
        self.context.found_silent.set(&self.key, count);
    }

    fn next_transitions(&mut self) -> (Vec<Transition>, Vec<Transition>) {
        let pulses = Arc::clone(&self.context.ports.pulses);
        let source = &self.context.ports.source;
        let (tables, state, now) = (pulses.tables(), source.state(), source.moment());
        let (mut valid, mut outdated) = (Vec::new(), Vec::new());
        let blindness = pulses.blindness();
        while valid.len() < VERDICTS_MAX
            && let Some(mut transition) = self.waiting.pop()
        {
            let still = transition.renew(&state, &tables, &blindness, now);
            let group = if still { &mut valid } else { &mut outdated };
            group.push(transition);
        }
        (valid, outdated)
    }

    /// If the proposal failed, others would fail now too: they wait for the next round.
    fn settled(&mut self, flight: u64, outcomes: &[ProposalOutcome], myself: &ActorRef<Msg>) {
        let slots = self.in_flight.remove(&flight).unwrap_or_default();
        self.give_back(slots.into_iter().zip(outcomes.iter().map(ProposalOutcome::is_decided)));
        if outcomes.iter().all(ProposalOutcome::is_decided) {
            self.flush(myself);
        }
        self.count_silent();
    }

    fn give_back(&self, settled: impl Iterator<Item = (Slot, bool)>) {
        let mut by_chunk: BTreeMap<ChunkNumber, Vec<(Slot, bool)>> = BTreeMap::new();
        settled.for_each(|entry| by_chunk.entry(ChunkNumber::of(entry.0)).or_default().push(entry));
        for (chunk, settled) in by_chunk {
            if let Some(shard) = self.shards.get(&chunk) {
                let _ = shard.actor.cast(shard::Msg::Settled(settled));
            }
        }
    }
}
