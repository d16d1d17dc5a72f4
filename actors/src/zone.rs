//! The actor of one zone: passes news on to its shards, and gathers its nodes' transitions into proposals.
//!
//! Few proposals are in flight at a time, so that one is confirmed while the log works on another. What comes up meanwhile
//! is gathered into the next one, so that a zone that goes dark costs a few hundred log entries and not one per node.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_lifecycle::zone::ZoneKey;
use ractor::{Actor as _, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::backlog::Backlog;
use crate::eviction_queue::FoundSilent;
use crate::ground::Ground;
use crate::letterbox::{Letterbox, Reader, Wake};
use crate::news::{News, RollCall};
use crate::nursery::Nursery;
use crate::population::Presence;
use crate::proposal::{OPERATIONS_MAX, Permit, Settlement};
use crate::roster::{self, ChunkNumber, ShardRoster, ZoneRoster};
use crate::surroundings::ActorKind;
use crate::transition::Transition;
use crate::{cluster, eviction_queue, restart, shard};

/// How many verdicts are confirmed and proposed at once: those that wait can still fall.
const VERDICTS_MAX: usize = OPERATIONS_MAX;
const FLIGHTS_MAX: usize = 2;

pub(crate) struct Actor;

/// What nodes and shards want to have proposed, the newest of each node. A letterbox, because a zone that goes dark has
/// more to say in a second than a mailbox is emptied of, one message at a time.
pub(crate) type Found = BTreeMap<Slot, Transition>;

#[derive(Debug)]
pub(crate) enum Msg {
    /// There is news.
    Wake,
    /// Something was found.
    Found,
    /// Behind whatever is in the mailbox, so that what is found meanwhile is proposed together.
    Flush,
    /// What came of a proposal in flight.
    Settled(u64, Vec<Settlement>),
}

pub(crate) struct Args {
    pub(crate) ground: Arc<Ground>,
    pub(crate) key: ZoneKey,
    pub(crate) cluster: ActorRef<cluster::Msg>,
    pub(crate) letterbox: Arc<Letterbox<News<ZoneRoster>>>,
}

pub(crate) struct State {
    ground: Arc<Ground>,
    key: ZoneKey,
    label: String,
    cluster: ActorRef<cluster::Msg>,
    letterbox: Arc<Letterbox<News<ZoneRoster>>>,
    shards: Nursery<ChunkNumber, shard::Msg, News<ShardRoster>>,
    queue: Nursery<(), eviction_queue::Msg, ()>,
    found: Arc<Letterbox<Found>>,
    waiting: Backlog,
    /// Whose transitions are in flight, by the number of the proposal and in its order.
    in_flight: BTreeMap<u64, Vec<Slot>>,
    next_flight: u64,
    /// How many these are, for the queue: it spends no token while they would change the zone.
    found_silent: FoundSilent,
    _presence: Presence,
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
        let Args { ground, key, cluster, letterbox } = args;
        let _presence = ground.enter(ActorKind::Zone);
        myself.cast(Msg::Wake)?;
        Ok(State {
            label: key.to_string(),
            ground,
            key,
            cluster,
            letterbox,
            shards: Nursery::new(),
            queue: Nursery::new(),
            found: Letterbox::with(Found::new()),
            waiting: Backlog::default(),
            in_flight: BTreeMap::new(),
            next_flight: 0,
            found_silent: FoundSilent::default(),
            _presence,
        })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.spawn_queue(&myself).await;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.ground.probe(ActorKind::Zone, &state.label);
        match message {
            Msg::Wake => state.read(&myself).await,
            Msg::Found => state.gather(&myself),
            Msg::Flush => state.flush(&myself),
            Msg::Settled(flight, settlements) => state.settled(flight, &settlements, &myself),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((id, reason)) = restart::demise(event) else { return Ok(()) };
        if let Some(chunk) = state.shards.key_of(id).copied() {
            let pause = state.shards.lost(chunk, Instant::now());
            tracing::error!(zone = %state.label, %chunk, reason, ?pause, "a shard died, it is rebuilt");
        } else if state.queue.key_of(id).is_some() {
            let pause = state.queue.lost((), Instant::now());
            tracing::error!(zone = %state.label, reason, ?pause, "an eviction queue died, it is rebuilt");
        }
        Ok(())
    }
}

// === news ===

impl State {
    async fn read(&mut self, myself: &ActorRef<Msg>) {
        let news = self.letterbox.take();
        let is_round = news.look.is_some();
        if is_round {
            self.rebuild(myself).await;
        }
        for (chunk, part) in self.divided(news) {
            self.deliver(chunk, part, myself).await;
        }
        if let Some(queue) = self.queue.get(&()) {
            queue.tell(|()| ());
        }
        if is_round {
            self.flush(myself);
        }
    }

    /// Each shard's share of the news. Shards that nobody is called for any more are retired.
    fn divided(&mut self, news: News<ZoneRoster>) -> BTreeMap<ChunkNumber, News<ShardRoster>> {
        let mut parts: BTreeMap<ChunkNumber, News<ShardRoster>> = BTreeMap::new();
        if let Some(RollCall { roster, unsure }) = news.roll_call {
            let roster = roster.unwrap_or_else(|| roster::of_zone(&self.ground.surroundings.ledger.state(), &self.key));
            let empty: Vec<ChunkNumber> =
                self.shards.keys().filter(|chunk| !roster.contains_key(chunk)).copied().collect();
            empty.iter().for_each(|chunk| self.shards.retire(chunk));
            for (chunk, roster) in roster {
                let call = RollCall { roster: Some(roster), unsure };
                parts.entry(chunk).or_default().roll_call = Some(call);
            }
        }
        for (chunk, roster) in news.joined {
            parts.entry(chunk).or_default().joined = roster;
        }
        for (slot, name) in news.touched {
            parts.entry(ChunkNumber::of(slot)).or_default().touched.insert(slot, name);
        }
        for (index, (slot, hearing)) in news.hearings {
            parts.entry(ChunkNumber::of(slot)).or_default().hearings.insert(index, (slot, hearing));
        }
        if let Some(look) = news.look {
            for chunk in self.shards.keys() {
                parts.entry(*chunk).or_default();
            }
            parts.values_mut().for_each(|part| part.look = Some(Arc::clone(&look)));
        }
        parts
    }

    /// A shard that is about to be rebuilt will read the state instead.
    async fn deliver(&mut self, chunk: ChunkNumber, part: News<ShardRoster>, myself: &ActorRef<Msg>) {
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
            self.ground.surroundings.observer.restarted(ActorKind::Shard);
            self.spawn_shard(chunk, News::rebuilt(), myself).await;
        }
        if !self.queue.due(Instant::now()).is_empty() {
            self.ground.surroundings.observer.restarted(ActorKind::EvictionQueue);
            self.spawn_queue(myself).await;
        }
    }

    async fn spawn_shard(&mut self, chunk: ChunkNumber, first: News<ShardRoster>, myself: &ActorRef<Msg>) {
        let letterbox = Letterbox::with(first);
        let args = shard::Args {
            ground: Arc::clone(&self.ground),
            key: self.key.clone(),
            chunk,
            zone: myself.clone(),
            found: Arc::clone(&self.found),
            letterbox: Arc::clone(&letterbox),
        };
        match shard::Actor::spawn_linked(None, shard::Actor, args, myself.get_cell()).await {
            Ok((actor, _)) => self.shards.put(chunk, Reader { actor, letterbox }),
            Err(error) => {
                let pause = self.shards.lost(chunk, Instant::now());
                tracing::error!(zone = %self.label, %chunk, %error, ?pause, "a shard did not start, it is tried again");
            }
        }
    }

    async fn spawn_queue(&mut self, myself: &ActorRef<Msg>) {
        let letterbox = Letterbox::with(());
        let args = eviction_queue::Args {
            ground: Arc::clone(&self.ground),
            key: self.key.clone(),
            cluster: self.cluster.clone(),
            letterbox: Arc::clone(&letterbox),
            found_silent: self.found_silent.clone(),
        };
        match eviction_queue::Actor::spawn_linked(None, eviction_queue::Actor, args, myself.get_cell()).await {
            Ok((actor, _)) => self.queue.put((), Reader { actor, letterbox }),
            Err(error) => {
                let pause = self.queue.lost((), Instant::now());
                tracing::error!(zone = %self.label, %error, ?pause, "an eviction queue did not start, it is tried again");
            }
        }
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

    /// Proposes what waits and still stands. Without room it waits for the next round.
    fn flush(&mut self, myself: &ActorRef<Msg>) {
        self.collect();
        while self.in_flight.len() < FLIGHTS_MAX && !self.waiting.is_empty() {
            let ground = Arc::clone(&self.ground);
            let Some(permit) = ground.proposer.permit() else { break };
            let (standing, fallen) = self.next_transitions();
            self.give_back(fallen.into_iter().map(|transition| (transition.slot, false)));
            if !standing.is_empty() {
                self.propose(permit, standing, myself);
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
        let settled = move |settlements| Msg::Settled(flight, settlements);
        permit.propose(operations, true).report_to(myself.clone(), settled);
    }

    fn count_silent(&self) {
        self.found_silent.set(self.waiting.len() + self.in_flight.values().map(Vec::len).sum::<usize>());
    }

    fn next_transitions(&mut self) -> (Vec<Transition>, Vec<Transition>) {
        let pulses = Arc::clone(&self.ground.surroundings.pulses);
        let ledger = &self.ground.surroundings.ledger;
        let (tables, state, now) = (pulses.tables(), ledger.state(), ledger.moment());
        let (mut standing, mut fallen) = (Vec::new(), Vec::new());
        let blindness = pulses.blindness();
        while standing.len() < VERDICTS_MAX
            && let Some(mut transition) = self.waiting.pop()
        {
            let still = transition.renew(&state, &tables, &blindness, now);
            let group = if still { &mut standing } else { &mut fallen };
            group.push(transition);
        }
        (standing, fallen)
    }

    /// If it failed, others would now fail too: they wait for the next round.
    fn settled(&mut self, flight: u64, settlements: &[Settlement], myself: &ActorRef<Msg>) {
        let slots = self.in_flight.remove(&flight).unwrap_or_default();
        self.give_back(slots.into_iter().zip(settlements.iter().map(Settlement::is_decided)));
        if settlements.iter().all(Settlement::is_decided) {
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
