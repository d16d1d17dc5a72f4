//! The actor of one shard: a zone's nodes in one chunk of slots.
//!
//! It judges its nodes itself until they have actors of their own. Those are spawned a slice at a time between other
//! messages, so that after a take-over no verdict waits for a million spawns. A node whose judgement panics, here or
//! in its own actor, is set aside and tried again later. A node that keeps doing so is quarantined.

mod crashes;
mod watched_nodes;

use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::node_watch::Next;
use ractor::{Actor as _, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::cluster::roster::{ChunkNumber, ShardRoster};
use crate::cluster::update::{JudgingRound, ShardUpdate};
use crate::node;
use crate::ports::ActorKind;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::supervision::restart;
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;
use crate::tree::spawn_pace::SPAWNED_AT_ONCE;
use crate::zone::{self, Found};

use watched_nodes::WatchedNodes;

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Wake,
    /// Some nodes have no actor of their own yet.
    Populate,
    /// The finding of a node's actor.
    Judged {
        slot: Slot,
        next: Next,
    },
    /// The outcomes of these nodes' transitions; false where the log did not decide.
    Settled(Vec<(Slot, bool)>),
}

pub(crate) struct Args {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) key: ZoneKey,
    pub(crate) chunk: ChunkNumber,
    pub(crate) zone: ActorRef<zone::Msg>,
    pub(crate) found: Arc<Letterbox<Found>>,
    pub(crate) letterbox: Arc<Letterbox<ShardUpdate<ShardRoster>>>,
}

pub(crate) struct State {
    /// For people: `region/zone#chunk`.
    label: String,
    letterbox: Arc<Letterbox<ShardUpdate<ShardRoster>>>,
    nodes: WatchedNodes,
    /// A [`Msg::Populate`] is under way.
    populating: bool,
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
        let Args { context, key, chunk, zone, found, letterbox } = args;
        let label = format!("{key}#{chunk}");
        let _counted = context.count(ActorKind::Shard);
        let shard = Arc::new(node::ShardContext { tree: context, zone, found, shard: myself.clone() });
        myself.cast(Msg::Wake)?;
        Ok(State { label, letterbox, nodes: WatchedNodes::new(shard, key, chunk), populating: false, _counted })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.nodes.tree().probe(ActorKind::Shard, &state.label);
        match message {
            Msg::Wake => state.read(&myself).await,
            Msg::Populate => state.populate(&myself).await,
            Msg::Judged { slot, next } => state.nodes.judged(slot, next),
            Msg::Settled(settled) => settled.into_iter().for_each(|(slot, decided)| state.nodes.settled(slot, decided)),
        }
        state.announce_missing_actors(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some((id, reason)) = restart::death_of(event) {
            state.nodes.actor_died(id, &reason);
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    async fn read(&mut self, myself: &ActorRef<Msg>) {
        let update = self.letterbox.take();
        if let Some(full) = update.full_roster {
            self.nodes.watch_only(full);
        }
        self.nodes.watch_too(&update.joined);
        self.nodes.touched(update.touched);
        update.hearings.into_values().for_each(|(slot, hearing)| self.nodes.hear(slot, hearing));
        if let Some(round) = update.round {
            self.round(&round, myself).await;
        }
    }

    async fn round(&mut self, round: &Arc<JudgingRound>, myself: &ActorRef<Msg>) {
        for (index, args) in self.nodes.take_due_restarts(&round.state) {
            self.nodes.tree().ports.observer.restarted(ActorKind::Node);
            self.spawn(index, args, myself).await;
        }
        self.nodes.note_quarantined();
        self.nodes.judge(round);
    }

    async fn populate(&mut self, myself: &ActorRef<Msg>) {
        self.populating = false;
        for (index, args) in self.nodes.next_without_actor(SPAWNED_AT_ONCE) {
            self.spawn(index, args, myself).await;
        }
    }

    async fn spawn(&mut self, index: u32, args: node::Args, myself: &ActorRef<Msg>) {
        match node::Actor::spawn_linked(None, node::Actor, args, myself.get_cell()).await {
            Ok((actor, _)) => self.nodes.got_actor(index, actor),
            Err(error) => self.nodes.crashed(index, &error.to_string()),
        }
    }

    /// The message queues behind what is in the mailbox already and takes turns with all other shards, so that
    /// spawning holds up nothing else.
    fn announce_missing_actors(&mut self, myself: &ActorRef<Msg>) {
        if self.populating || !self.nodes.lacks_actors() {
            return;
        }
        let wait = self.nodes.tree().pace.wait_for_turn();
        self.populating = if wait.is_zero() {
            myself.cast(Msg::Populate).is_ok()
        } else {
            drop(myself.send_after(wait, || Msg::Populate));
            true
        };
    }
}
