//! The actor of one node: a thin shell around its [`NodeWatch`].
//!
//! It owns nothing that is lost with it: rebuilt, it starts out unsure of its node and judges it at the next round.

use std::sync::Arc;
use std::time::Instant;

use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_pulse::sweep::PulseState;
use ractor::{ActorProcessingErr, ActorRef};

use crate::ground::Ground;
use crate::letterbox::Letterbox;
use crate::news::Look;
use crate::node_watch::{Judgement, NodeWatch};
use crate::population::Presence;
use crate::shard;
use crate::surroundings::ActorKind;
use crate::transition::Transition;
use crate::zone::{self, Found};

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Pulse(PulseState),
    /// What the node is judged by changed: its object, or the policy.
    Changed,
    Judge(Arc<Look>),
    /// Its transition was decided, or not proposed after all.
    Settled,
}

pub(crate) struct Args {
    pub(crate) name: Text,
    pub(crate) watch: NodeWatch,
    pub(crate) home: Arc<Home>,
}

/// What the nodes of one shard have in common.
pub(crate) struct Home {
    pub(crate) ground: Arc<Ground>,
    pub(crate) zone: ActorRef<zone::Msg>,
    pub(crate) found: Arc<Letterbox<Found>>,
    pub(crate) shard: ActorRef<shard::Msg>,
}

pub(crate) struct State {
    name: Text,
    watch: NodeWatch,
    home: Arc<Home>,
    _presence: Presence,
}

/// What came of a look.
#[derive(Debug)]
pub(crate) struct Finding {
    /// From when on to look again.
    pub(crate) due: Option<ClusterTime>,
    pub(crate) transition: Option<Transition>,
}

/// Looks at a node, wherever its watch is kept.
pub(crate) fn examine(watch: &mut NodeWatch, name: &str, look: &Look, ground: &Ground) -> Finding {
    let transition = match look.state.node(name) {
        Some(node) if watch.is_due(look.moment.stamp.cluster) => {
            let started = Instant::now();
            // Read before the verdict, so that a beat that comes between the two makes the verdict fall.
            let trace = watch.trace(&look.tables);
            let blindness = ground.surroundings.pulses.blindness();
            let judgement = watch.judge(&look.state, node, &look.tables, &blindness, look.moment);
            drop(blindness);
            ground.surroundings.observer.judged(&judgement, started.elapsed());
            match judgement {
                Judgement::Propose(operation) => Some(Transition { slot: watch.slot(), operation, trace: Some(trace) }),
                Judgement::Nothing | Judgement::LookAgain(_) => None,
            }
        }
        Some(_) | None => None,
    };
    Finding { due: watch.due_at(), transition }
}

pub(crate) fn hear(watch: &mut NodeWatch, hearing: PulseState) {
    match hearing {
        PulseState::Heard => watch.was_heard(),
        PulseState::Silent => watch.fell_silent(),
    }
}

// === impl Actor ===

impl ractor::Actor for Actor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let Args { name, watch, home } = args;
        let _presence = home.ground.enter(ActorKind::Node);
        Ok(State { name, watch, home, _presence })
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.home.ground.probe(ActorKind::Node, &state.name);
        match message {
            Msg::Pulse(hearing) => hear(&mut state.watch, hearing),
            Msg::Changed => state.watch.reconsider(),
            Msg::Settled => state.watch.settled(),
            Msg::Judge(look) => state.judge(&look),
        }
        Ok(())
    }
}

// === impl Home ===

impl Home {
    pub(crate) fn propose(&self, transition: Transition) {
        if self.found.post(|found| drop(found.insert(transition.slot, transition))) {
            let _ = self.zone.cast(zone::Msg::Found);
        }
    }
}

// === impl State ===

impl State {
    /// A shard or zone that is gone takes this actor along, so that what they do not hear does not matter.
    fn judge(&mut self, look: &Look) {
        let Finding { due, transition } = examine(&mut self.watch, &self.name, look, &self.home.ground);
        if let Some(due) = due {
            let _ = self.home.shard.cast(shard::Msg::Judged { slot: self.watch.slot(), due });
        }
        if let Some(transition) = transition {
            self.home.propose(transition);
        }
    }
}
