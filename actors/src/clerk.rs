//! The actor of one chore: looks, proposes what it finds, and looks again when that is decided.
//!
//! It looks when something was committed, at every round, and when the one timer it has runs out. One proposal is under
//! way at a time; what came to nothing is not repeated before the next round. A look that found nothing to do is not
//! repeated for every commit, but after a pause. What makes up for evictions waits for their end ([`precedence`]).
//!
//! [`precedence`]: crate::precedence

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::command::Operation;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo::Todo;
use ractor::{ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::chore::{Chore, Memory};
use crate::ground::Ground;
use crate::letterbox::{Letterbox, Wake};
use crate::population::Presence;
use crate::proposal::Settlement;
use muster_pulse::moment::Moment;

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Look,
    /// The alarm rings.
    Ring,
    Settled(Vec<Settlement>),
}

pub(crate) struct Args {
    pub(crate) ground: Arc<Ground>,
    pub(crate) chore: Chore,
    pub(crate) letterbox: Arc<Letterbox<()>>,
}

pub(crate) struct State {
    ground: Arc<Ground>,
    chore: Chore,
    memory: Memory,
    letterbox: Arc<Letterbox<()>>,
    /// Something is on its way through the log.
    proposed: bool,
    /// Not to look again before, because the last look found nothing.
    rest_until: Instant,
    alarm: Option<Alarm<Instant>>,
    _presence: Presence,
}

/// A look at many nodes is not taken for every commit.
const REST: Duration = Duration::from_millis(50);

impl Wake for Msg {
    fn wake() -> Self {
        Self::Look
    }
}

// === impl Actor ===

impl ractor::Actor for Actor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let Args { ground, chore, letterbox } = args;
        let _presence = ground.enter(chore.kind());
        myself.cast(Msg::Look)?;
        let (memory, rest_until) = (Memory::default(), Instant::now());
        Ok(State { ground, chore, memory, letterbox, proposed: false, rest_until, alarm: None, _presence })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.ground.probe(state.chore.kind(), state.chore.kind().as_str());
        match message {
            Msg::Look => state.woken(&myself),
            Msg::Ring => state.ring(&myself),
            Msg::Settled(settlements) => state.settled(&settlements, &myself),
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    fn woken(&mut self, myself: &ActorRef<Msg>) {
        self.letterbox.take();
        if self.proposed {
            return;
        }
        match self.rest_until > Instant::now() {
            true => self.set_alarm(self.rest_until, myself),
            false => self.look(myself),
        }
    }

    fn ring(&mut self, myself: &ActorRef<Msg>) {
        self.alarm = None;
        if !self.proposed {
            self.look(myself);
        }
    }

    fn look(&mut self, myself: &ActorRef<Msg>) {
        if self.chore.gives_way() && self.ground.precedence.is_taken(Instant::now()) {
            return self.set_alarm(Instant::now() + REST, myself);
        }
        let ledger = &self.ground.surroundings.ledger;
        let (committed, moment) = (ledger.state(), ledger.moment());
        let Todo { operations, look_again_at } = self.chore.look(&committed, moment, &self.ground, &mut self.memory);
        if self.chore == Chore::TaintEviction {
            self.ground.precedence.set(!operations.is_empty(), Instant::now());
        }
        if operations.is_empty() {
            self.rest_until = Instant::now() + REST;
        } else {
            self.propose(operations, myself);
        }
        if let Some(at) = look_again_at {
            self.set_alarm(Instant::now() + until(at, moment), myself);
        }
    }

    fn propose(&mut self, operations: Vec<Operation>, myself: &ActorRef<Msg>) {
        if let Some(permit) = self.ground.proposer.permit() {
            permit.propose(operations, false).report_to(myself.clone(), Msg::Settled);
            self.proposed = true;
        }
    }

    /// What was rejected was overtaken: the state says what is to be done now.
    fn settled(&mut self, settlements: &[Settlement], myself: &ActorRef<Msg>) {
        self.proposed = false;
        match settlements.iter().any(Settlement::is_done) {
            true => self.look(myself),
            false => self.rest_until = Instant::now() + REST,
        }
    }

    /// The earliest counts.
    fn set_alarm(&mut self, at: Instant, myself: &ActorRef<Msg>) {
        if self.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
            return;
        }
        let pause = at.saturating_duration_since(Instant::now());
        self.alarm = Some(Alarm::set(at, pause, myself, || Msg::Ring));
    }
}

fn until(at: ClusterTime, moment: Moment) -> Duration {
    Duration::from_millis(at.0.saturating_sub(moment.stamp.cluster.0))
}
