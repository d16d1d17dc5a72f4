//! The actor of one shard: a zone's nodes in one chunk of slots.
//!
//! It judges its nodes itself until they have actors of their own, which are spawned a slice at a time between other
//! messages: after a take-over no verdict waits for a million spawns. A node whose judgement panics, here or in its own
//! actor, is set aside and tried again later; one that keeps doing so is quarantined.

mod illness;
mod wards;

use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;
use ractor::{Actor as _, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::ground::Ground;
use crate::letterbox::{Letterbox, Wake};
use crate::news::{Look, News};
use crate::node;
use crate::pace::SPAWNED_AT_ONCE;
use crate::population::Presence;
use crate::restart;
use crate::roster::{ChunkNumber, ShardRoster};
use crate::surroundings::ActorKind;
use crate::zone::{self, Found};

use wards::Wards;

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Wake,
    /// Some nodes have no actor of their own yet.
    Populate,
    /// A node is to be looked at again.
    Judged {
        slot: Slot,
        due: ClusterTime,
    },
    /// Transitions of these nodes were settled; false where the log did not decide.
    Settled(Vec<(Slot, bool)>),
}

pub(crate) struct Args {
    pub(crate) ground: Arc<Ground>,
    pub(crate) key: ZoneKey,
    pub(crate) chunk: ChunkNumber,
    pub(crate) zone: ActorRef<zone::Msg>,
    pub(crate) found: Arc<Letterbox<Found>>,
    pub(crate) letterbox: Arc<Letterbox<News<ShardRoster>>>,
}

pub(crate) struct State {
    /// For people: `region/zone#chunk`.
    label: String,
    letterbox: Arc<Letterbox<News<ShardRoster>>>,
    wards: Wards,
    /// A [`Msg::Populate`] is under way.
    populating: bool,
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
        let Args { ground, key, chunk, zone, found, letterbox } = args;
        let label = format!("{key}#{chunk}");
        let _presence = ground.enter(ActorKind::Shard);
        let home = Arc::new(node::Home { ground, zone, found, shard: myself.clone() });
        myself.cast(Msg::Wake)?;
        Ok(State { label, letterbox, wards: Wards::new(home, key, chunk), populating: false, _presence })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.wards.ground().probe(ActorKind::Shard, &state.label);
        match message {
            Msg::Wake => state.read(&myself).await,
            Msg::Populate => state.populate(&myself).await,
            Msg::Judged { slot, due } => state.wards.look_again(slot, due),
            Msg::Settled(settled) => settled.into_iter().for_each(|(slot, decided)| state.wards.settled(slot, decided)),
        }
        state.announce_unmanned(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some((id, reason)) = restart::demise(event) {
            state.wards.died(id, &reason);
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    async fn read(&mut self, myself: &ActorRef<Msg>) {
        let news = self.letterbox.take();
        if let Some(call) = news.roll_call {
            self.wards.call(call);
        }
        self.wards.join(&news.joined);
        self.wards.touched(news.touched);
        news.hearings.into_values().for_each(|(slot, hearing)| self.wards.hear(slot, hearing));
        if let Some(look) = news.look {
            self.round(&look, myself).await;
        }
    }

    async fn round(&mut self, look: &Arc<Look>, myself: &ActorRef<Msg>) {
        for (index, args) in self.wards.recovered(&look.state) {
            self.wards.ground().surroundings.observer.restarted(ActorKind::Node);
            self.spawn(index, args, myself).await;
        }
        self.wards.note_quarantined();
        self.wards.judge(look);
    }

    async fn populate(&mut self, myself: &ActorRef<Msg>) {
        self.populating = false;
        for (index, args) in self.wards.unmanned(SPAWNED_AT_ONCE) {
            self.spawn(index, args, myself).await;
        }
    }

    async fn spawn(&mut self, index: u32, args: node::Args, myself: &ActorRef<Msg>) {
        match node::Actor::spawn_linked(None, node::Actor, args, myself.get_cell()).await {
            Ok((actor, _)) => self.wards.manned(index, actor),
            Err(error) => self.wards.fell_ill(index, &error.to_string()),
        }
    }

    /// Behind what is in the mailbox already and in turns with all other shards, so that spawning holds up nothing else.
    fn announce_unmanned(&mut self, myself: &ActorRef<Msg>) {
        if self.populating || !self.wards.has_unmanned() {
            return;
        }
        let wait = self.wards.ground().pace.wait_for_turn();
        self.populating = if wait.is_zero() {
            myself.cast(Msg::Populate).is_ok()
        } else {
            drop(myself.send_after(wait, || Msg::Populate));
            true
        };
    }
}
