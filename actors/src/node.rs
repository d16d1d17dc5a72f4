//! The actor of one node: judges it when its shard says so.
//!
//! It owns nothing that is lost with it: when to judge is kept by the shard, what to judge by is in the round.

use std::sync::Arc;
use std::time::Instant;

use muster_lifecycle::text::Text;
use muster_pulse::node_watch::{Judgement, Next, NodeWatch};
use ractor::{ActorProcessingErr, ActorRef};

use crate::cluster::update::JudgingRound;
use crate::ports::ActorKind;
use crate::shard;
use crate::supervision::letterbox::Letterbox;
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;
use crate::zone::transition::Transition;
use crate::zone::{self, Found};

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Judge(Arc<JudgingRound>),
}

pub(crate) struct Args {
    pub(crate) name: Text,
    pub(crate) watch: NodeWatch,
    pub(crate) shard: Arc<ShardContext>,
}

/// The context that the judgements of one shard's nodes share.
pub(crate) struct ShardContext {
    pub(crate) tree: Arc<TreeContext>,
    pub(crate) zone: ActorRef<zone::Msg>,
    pub(crate) found: Arc<Letterbox<Found>>,
    pub(crate) shard: ActorRef<shard::Msg>,
}

pub(crate) struct State {
    name: Text,
    watch: NodeWatch,
    shard: Arc<ShardContext>,
    _counted: Counted,
}

/// The result of a judgement, and what is to be proposed about the node.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) next: Next,
    pub(crate) transition: Option<Transition>,
}

/// Judges a node, whether or not it has an actor.
pub(crate) fn judge(watch: &NodeWatch, name: &str, round: &JudgingRound, tree: &TreeContext) -> Finding {
    let Some(node) = round.state.node(name) else { return Finding::GONE };
    let started = Instant::now();
    // Read before the verdict, so that a beat that comes between the two invalidates the verdict.
    let trace = watch.trace(&round.tables);
    let blindness = tree.ports.pulses.blindness();
    let judgement = watch.judge(&round.state, node, trace, &blindness, round.moment);
    drop(blindness);
    let Some(judgement) = judgement else { return Finding::GONE };
    tree.ports.observer.judged(&judgement, started.elapsed());
    let next = judgement.next();
    let transition = match judgement {
        Judgement::Propose(operation) => Some(Transition { slot: watch.slot(), operation, trace: Some(trace) }),
        Judgement::AlreadyUnknown(_) | Judgement::LookAgain(_) => None,
    };
    Finding { next, transition }
}

// === impl Actor ===

impl ractor::Actor for Actor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let Args { name, watch, shard } = args;
        let _counted = shard.tree.count(ActorKind::Node);
        Ok(State { name, watch, shard, _counted })
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.shard.tree.probe(ActorKind::Node, &state.name);
        match message {
            Msg::Judge(round) => state.judge(&round),
        }
        Ok(())
    }
}

// === impl ShardContext ===

impl ShardContext {
    pub(crate) fn propose(&self, transition: Transition) {
        if self.found.post(|found| drop(found.insert(transition.slot, transition))) {
            let _ = self.zone.cast(zone::Msg::Found);
        }
    }
}

// === impl Finding ===

impl Finding {
    const GONE: Self = Self { next: Next::Gone, transition: None };
}

// === impl State ===

impl State {
    /// A shard or zone that is gone takes this actor along, so a message that does not reach them does not matter.
    /// The shard is told first: the outcome of a proposal must not reach it before it knows of the proposal.
    fn judge(&mut self, round: &JudgingRound) {
        let Finding { next, transition } = judge(&self.watch, &self.name, round, &self.shard.tree);
        let _ = self.shard.shard.cast(shard::Msg::Judged { slot: self.watch.slot(), next });
        if let Some(transition) = transition {
            self.shard.propose(transition);
        }
    }
}
