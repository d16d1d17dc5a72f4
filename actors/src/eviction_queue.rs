//! The actor of one zone's eviction queue. Queue, bucket and rate are replicated; this only asks at the right moment.
//!
//! It looks at every round, when something changed in its zone, and when the one timer it has runs out. A proposal that
//! came to nothing is not repeated before the next round. Whoever is heard again when its turn comes is passed over for a
//! while ([`Spared`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use muster_lifecycle::command::Operation;
use muster_lifecycle::node::Node;
use muster_lifecycle::oversight::{self, EvictionStep};
use muster_lifecycle::spared::Spared;
use muster_lifecycle::state;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;
use ractor::{ActorProcessingErr, ActorRef};

use crate::alarm::Alarm;
use crate::cluster;
use crate::ground::Ground;
use crate::letterbox::{Letterbox, Wake};
use crate::population::Presence;
use crate::proposal::Settlement;
use crate::surroundings::ActorKind;
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
    pub(crate) key: ZoneKey,
    pub(crate) cluster: ActorRef<cluster::Msg>,
    pub(crate) letterbox: Arc<Letterbox<()>>,
    pub(crate) found_silent: FoundSilent,
}

/// How many nodes of the zone were found silent and are not yet written down. Kept by the zone, read by its queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct FoundSilent(Arc<AtomicU32>);

pub(crate) struct State {
    ground: Arc<Ground>,
    key: ZoneKey,
    label: String,
    cluster: ActorRef<cluster::Msg>,
    letterbox: Arc<Letterbox<()>>,
    found_silent: FoundSilent,
    /// An eviction is on its way through the log.
    proposed: bool,
    alarm: Option<Alarm<ClusterTime>>,
    spared: Spared,
    _presence: Presence,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Propose(Operation),
    /// The zones must be assessed before a token is spent.
    AskForAssessment,
    LookAgainAt(ClusterTime),
    /// Until the next round, or until something changes.
    Rest,
}

fn next_step(
    state: &state::State,
    zone: &ZoneKey,
    now: ClusterTime,
    is_blind: bool,
    found_silent: u32,
    is_spared: impl FnMut(&Node) -> bool,
) -> Step {
    match oversight::eviction_step_sparing(state, zone, now, is_spared) {
        EvictionStep::Idle => Step::Rest,
        EvictionStep::WaitUntil(at) => Step::LookAgainAt(at),
        // I-03: whoever is blind now may have been when it judged.
        EvictionStep::Evict { .. } if is_blind => Step::Rest,
        EvictionStep::Evict { .. } if oversight::is_about_to_change(state, zone, found_silent) => Step::Rest,
        EvictionStep::Evict { .. } if oversight::assessment_is_due(state, now) => Step::AskForAssessment,
        EvictionStep::Evict { name, incarnation } => Step::Propose(Operation::EvictNode { name, incarnation }),
    }
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
        let Args { ground, key, cluster, letterbox, found_silent } = args;
        let _presence = ground.enter(ActorKind::EvictionQueue);
        myself.cast(Msg::Look)?;
        let label = key.to_string();
        let (proposed, alarm, spared) = (false, None, Spared::default());
        Ok(State { ground, key, label, cluster, letterbox, found_silent, proposed, alarm, spared, _presence })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.ground.probe(ActorKind::EvictionQueue, &state.label);
        match message {
            Msg::Look => state.look(&myself),
            Msg::Ring => state.ring(&myself),
            Msg::Settled(settlements) => state.settled(&settlements, &myself),
        }
        Ok(())
    }
}

// === impl FoundSilent ===

impl FoundSilent {
    pub(crate) fn set(&self, count: usize) {
        self.0.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl State ===

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        self.letterbox.take();
        if self.proposed {
            return;
        }
        let ledger = &self.ground.surroundings.ledger;
        let (committed, moment) = (ledger.state(), ledger.moment());
        let step = self.next_step(&committed, moment);
        self.alarm.take_if(|alarm| step != Step::LookAgainAt(alarm.at));
        match step {
            Step::Propose(operation) => self.propose(operation, myself),
            Step::AskForAssessment => drop(self.cluster.cast(cluster::Msg::Assess)),
            Step::LookAgainAt(at) => self.set_alarm(at, moment, myself),
            Step::Rest => {}
        }
    }

    fn next_step(&mut self, committed: &state::State, moment: Moment) -> Step {
        let (tables, now) = (self.ground.surroundings.pulses.tables(), moment.stamp.cluster);
        let is_blind = self.ground.is_blind(committed.policy(), moment);
        let queue = committed.queue(&self.key);
        self.spared.keep_only(|name| queue.is_some_and(|queue| queue.contains(name)));
        let is_spared = |node: &Node| {
            let heard = tables.last_heard(node.slot).map(|(at, _)| moment.cluster_time_of(at));
            self.spared.passes_over(node, heard, committed.policy(), now)
        };
        next_step(committed, &self.key, now, is_blind, self.found_silent.count(), is_spared)
    }

    fn ring(&mut self, myself: &ActorRef<Msg>) {
        self.alarm = None;
        self.look(myself);
    }

    fn propose(&mut self, operation: Operation, myself: &ActorRef<Msg>) {
        if let Some(permit) = self.ground.proposer.permit() {
            permit.propose(vec![operation], true).report_to(myself.clone(), Msg::Settled);
            self.proposed = true;
        }
    }

    fn settled(&mut self, settlements: &[Settlement], myself: &ActorRef<Msg>) {
        self.proposed = false;
        if settlements.iter().all(Settlement::is_done) {
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
