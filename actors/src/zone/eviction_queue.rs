//! The actor of one zone's eviction queue. Queue, bucket and rate are replicated; the actor only proposes at the
//! right moment.
//!
//! It looks in every round, when something changed in its zone, and when its one timer runs out. A proposal that
//! failed is not repeated before the next round.
//! [`LeaderView::next_eviction`](muster_lifecycle::leader_view::LeaderView::next_eviction) decides what to do.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::leader_view::NextEviction;
use muster_lifecycle::spared::Spared;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;
use ractor::{ActorProcessingErr, ActorRef};

use crate::cluster;
use crate::ports::ActorKind;
use crate::proposal::ProposalOutcome;
use crate::supervision::alarm::Alarm;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;
use muster_pulse::moment::Moment;

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
    pub(crate) key: ZoneKey,
    pub(crate) cluster: ActorRef<cluster::Msg>,
    pub(crate) letterbox: Arc<Letterbox<()>>,
}

pub(crate) struct State {
    context: Arc<TreeContext>,
    key: ZoneKey,
    label: String,
    cluster: ActorRef<cluster::Msg>,
    letterbox: Arc<Letterbox<()>>,
    /// An eviction is proposed and not decided yet.
    proposed: bool,
    alarm: Option<Alarm<ClusterTime>>,
    spared: Spared,
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
        let Args { context, key, cluster, letterbox } = args;
        let _counted = context.count(ActorKind::EvictionQueue);
        myself.cast(Msg::Look)?;
        let label = key.to_string();
        let (proposed, alarm, spared) = (false, None, Spared::default());
        Ok(State { context, key, label, cluster, letterbox, proposed, alarm, spared, _counted })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.context.probe(ActorKind::EvictionQueue, &state.label);
        match message {
            Msg::Look => state.look(&myself),
            Msg::Ring => state.ring(&myself),
            Msg::Settled(outcomes) => state.settled(&outcomes, &myself),
        }
        Ok(())
    }
}

// === impl State ===

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        self.letterbox.take();
        if self.proposed {
            return;
        }
        let ports = &self.context.ports;
        let (committed, moment) = (ports.source.state(), ports.source.moment());
        let found_silent = |zone: &ZoneKey| self.context.found_silent.count(zone);
        let step = ports.pulses.view(committed.policy(), moment, |view| {
            view.next_eviction(&committed, &self.key, &mut self.spared, &found_silent)
        });
        self.alarm.take_if(|alarm| step != NextEviction::LookAgainAt(alarm.at));
        match step {
            NextEviction::Propose(operation) => self.propose(operation, myself),
            NextEviction::AssessFirst => drop(self.cluster.cast(cluster::Msg::Assess)),
            NextEviction::LookAgainAt(at) => self.set_alarm(at, moment, myself),
            NextEviction::Rest => {}
        }
    }

    fn ring(&mut self, myself: &ActorRef<Msg>) {
        self.alarm = None;
        self.look(myself);
    }

    fn propose(&mut self, operation: LeaderOperation, myself: &ActorRef<Msg>) {
        if let Some(permit) = self.context.proposer.permit() {
            permit.propose(vec![operation], true).report_to(myself.clone(), Msg::Settled);
            self.proposed = true;
        }
    }

    fn settled(&mut self, outcomes: &[ProposalOutcome], myself: &ActorRef<Msg>) {
        self.proposed = false;
        if outcomes.iter().all(ProposalOutcome::is_done) {
            self.look(myself);
        }
    }

    fn set_alarm(&mut self, at: ClusterTime, moment: Moment, myself: &ActorRef<Msg>) {
        if self.alarm.is_none() {
            let pause = Duration::from_millis(at.0.saturating_sub(moment.stamp.cluster.0));
            self.alarm = Some(Alarm::set(at, pause, myself, || Msg::Ring));
        }
    }
}
