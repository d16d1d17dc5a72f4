//! The actor of one clerk: looks, proposes what it finds, and looks again when that is decided.
//!
//! It looks when something was committed, in every round, and when its one timer runs out. One proposal is in flight
//! at a time; a failed one is not repeated before the next round. After a look that found nothing the clerk rests,
//! instead of looking for every commit. [`muster_lifecycle::clerk_task`] decides what is to be done, and which task
//! waits for evictions.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::clerk_task::ClerkTask;
use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::spared::Spared;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo::Todo;
use ractor::{ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use crate::cluster;
use crate::ports::ActorKind;
use crate::proposal::ProposalOutcome;
use crate::supervision::alarm::Alarm;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Look,
    /// The timer fired.
    Ring,
    Settled(Vec<ProposalOutcome>),
}

pub(crate) struct Args {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) task: ClerkTask,
    pub(crate) cluster: ActorRef<cluster::Msg>,
    pub(crate) letterbox: Arc<Letterbox<()>>,
}

pub(crate) struct State {
    context: Arc<TreeContext>,
    task: ClerkTask,
    cluster: ActorRef<cluster::Msg>,
    /// The nodes whose pods it leaves alone for a while. Their loss with this actor costs nothing but time.
    spared: Spared,
    letterbox: Arc<Letterbox<()>>,
    /// A proposal is in flight.
    proposed: bool,
    /// No look before this moment, because the last look found nothing.
    rest_until: Instant,
    alarm: Option<Alarm<Instant>>,
    _counted: Counted,
}

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
        let Args { context, task, cluster, letterbox } = args;
        let _counted = context.count(kind(task));
        myself.cast(Msg::Look)?;
        let (spared, rest_until) = (Spared::default(), Instant::now());
        Ok(State { context, task, cluster, spared, letterbox, proposed: false, rest_until, alarm: None, _counted })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.context.probe(kind(state.task), kind(state.task).as_str());
        match message {
            Msg::Look => state.woken(&myself),
            Msg::Ring => state.ring(&myself),
            Msg::Settled(outcomes) => state.settled(&outcomes, &myself),
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
        let ports = &self.context.ports;
        let (committed, moment) = (ports.source.state(), ports.source.moment());
        let now = moment.stamp.cluster;
        let wait_until = self.context.evictions_first().wait_until(self.task, now);
        if let Some(until) = wait_until {
            return self.set_alarm(Instant::now() + pause(now, until), myself);
        }
        let Todo { operations, look_again_at } =
            ports.pulses.view(committed.policy(), moment, |view| self.task.look(&committed, view, &mut self.spared));
        if self.context.evictions_first().found(self.task, &operations, now) {
            let _ = self.cluster.cast(cluster::Msg::EvictionsEnded);
        }
        if operations.is_empty() {
            self.rest_until = Instant::now() + self.context.ports.rest;
        } else {
            self.propose(operations, myself);
        }
        if let Some(at) = look_again_at {
            self.set_alarm(Instant::now() + pause(now, at), myself);
        }
    }

    fn propose(&mut self, operations: Vec<LeaderOperation>, myself: &ActorRef<Msg>) {
        if let Some(permit) = self.context.proposer.permit() {
            permit.propose(operations, false).report_to(myself.clone(), Msg::Settled);
            self.proposed = true;
        }
    }

    /// A rejected operation was overtaken: the state says what is to be done now.
    fn settled(&mut self, outcomes: &[ProposalOutcome], myself: &ActorRef<Msg>) {
        self.proposed = false;
        match outcomes.iter().any(ProposalOutcome::is_done) {
            true => self.look(myself),
            false => self.rest_until = Instant::now() + self.context.ports.rest,
        }
    }

    /// The earliest alarm counts.
    fn set_alarm(&mut self, at: Instant, myself: &ActorRef<Msg>) {
        if self.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
            return;
        }
        let pause = at.saturating_duration_since(Instant::now());
        self.alarm = Some(Alarm::set(at, pause, myself, || Msg::Ring));
    }
}

fn pause(now: ClusterTime, until: ClusterTime) -> Duration {
    Duration::from_millis(until.0.saturating_sub(now.0))
}

pub(crate) fn kind(task: ClerkTask) -> ActorKind {
    match task {
        ClerkTask::TaintEviction => ActorKind::TaintEviction,
        ClerkTask::Placement => ActorKind::Placement,
        ClerkTask::PodGc => ActorKind::PodGc,
        ClerkTask::Staffing => ActorKind::Staffing,
        ClerkTask::Ipam => ActorKind::Ipam,
    }
}
