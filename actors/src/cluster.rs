//! The root actor: sweeps all slots, tells the zones what changed, and sets the pace of judging.
//!
//! A round first checks whether this replica itself was blind, then sweeps, then passes on what was heard together
//! with what to judge by. The root actor also proposes what concerns the whole fleet, one operation at a time:
//! assessments of the zones, and lifts while all zones are fully disrupted.
//!
//! A large fleet is not looked at in one go. Nodes that have not been heard for long come first, so that the first
//! round after a take-over can judge them. The rest follows part by part between rounds.

mod atlas;
pub(crate) mod roster;
pub(crate) mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::clerk_task::ClerkTask;
use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::node::Node;
use muster_lifecycle::oversight;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;
use muster_lifecycle::zone::ZoneKey;
use ractor::{ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::clerk;
use crate::cluster::roster::ZoneRoster;
use crate::cluster::update::{Hearings, JudgingRound, ShardUpdate, Touched};
use crate::ports::ActorKind;
use crate::proposal::ProposalOutcome;
use crate::supervision::children::Children;
use crate::supervision::letterbox::{Letterbox, Wake};
use crate::supervision::restart;
use crate::tree::actor_counts::Counted;
use crate::tree::context::TreeContext;
use crate::zone;
use muster_pulse::blindness::JudgingLoop;
use muster_pulse::moment::Moment;

use atlas::{Atlas, Placed};

const NAME: &str = "cluster";

/// How much of the fleet is looked at between two messages while the tree grows, and the pause before the next part.
const SURVEYED_AT_ONCE: usize = 2_048;
const SURVEY_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Actor;

#[derive(Debug)]
pub(crate) enum Msg {
    Wake,
    Round,
    /// Part of the fleet has not been looked at yet.
    Survey,
    /// An eviction waits for the zones to be assessed.
    Assess,
    Assessed,
    /// Work that waited for evictions may go on.
    EvictionsEnded,
    Lifted(Vec<ProposalOutcome>),
}

/// The commits since they were last read.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    pub(crate) touched: Touched,
    /// Pods or workloads changed.
    pub(crate) work: bool,
    /// Some changes are missing here: only the state is complete.
    pub(crate) lost_track: bool,
}

pub(crate) struct Args {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) letterbox: Arc<Letterbox<Commits>>,
}

pub(crate) struct State {
    context: Arc<TreeContext>,
    letterbox: Arc<Letterbox<Commits>>,
    atlas: Atlas,
    zones: Children<ZoneKey, zone::Msg, ShardUpdate<ZoneRoster>>,
    clerks: Children<ClerkTask, clerk::Msg, ()>,
    /// While the tree grows: the nodes up to this name are watched.
    surveyed_to: Option<Text>,
    policy: Option<Policy>,
    next_assessment: ClusterTime,
    assessing: bool,
    lifting: bool,
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
        let Args { context, letterbox } = args;
        context.ports.probe.growing();
        // The state that is read next contains all commits so far.
        letterbox.take();
        let _counted = context.count(ActorKind::Cluster);
        myself.cast(Msg::Round)?;
        Ok(State {
            context,
            letterbox,
            atlas: Atlas::new(),
            zones: Children::new(),
            clerks: Children::new(),
            surveyed_to: Some(Text::default()),
            policy: None,
            next_assessment: ClusterTime(0),
            assessing: false,
            lifting: false,
            _counted,
        })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.call_the_unheard(&myself).await;
        state.survey_on(&myself).await;
        for task in ClerkTask::ALL {
            state.spawn_clerk(task, &myself).await;
        }
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.context.probe(ActorKind::Cluster, NAME);
        match message {
            Msg::Wake => state.read(&myself).await,
            Msg::Round => state.round(&myself).await,
            Msg::Survey => state.survey_on(&myself).await,
            Msg::Assess => state.assess(&myself),
            Msg::Assessed => state.assessed(&myself),
            Msg::EvictionsEnded => state.wake_clerks(),
            Msg::Lifted(outcomes) => state.lifted(&outcomes, &myself),
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
        if !state.zones.died(id, |_| ActorKind::Zone, &reason) {
            state.clerks.died(id, |task| clerk::kind(*task), &reason);
        }
        Ok(())
    }
}

// === watched nodes ===

impl State {
    async fn read(&mut self, myself: &ActorRef<Msg>) {
        let commits = self.letterbox.take();
        let is_news = commits.lost_track || commits.work || !commits.touched.is_empty();
        if commits.lost_track {
            self.survey(myself).await;
        } else if !commits.touched.is_empty() {
            self.touched(commits.touched, myself).await;
        }
        if is_news {
            self.wake_clerks();
        }
    }

    /// Watches the nodes that may be due for a verdict before the rest of the fleet is looked at: they have missed
    /// several beats.
    async fn call_the_unheard(&mut self, myself: &ActorRef<Msg>) {
        let started = Instant::now();
        let (committed, moment) = self.now();
        let half_a_grace = duration(committed.policy().shortest_grace()) / 2;
        let unheard = self.context.ports.pulses.tables().unheard(moment.tick.before(half_a_grace));
        let is_due = |node: &&Arc<Node>| unheard.contains(&node.slot) && !node.is_unknown();
        let called: Vec<&Arc<Node>> = committed.nodes().iter().filter(is_due).collect();
        let (nodes, first) = (committed.nodes().len(), called.len());
        let rosters = self.place(called, moment);
        self.tell_of(rosters, ShardUpdate::joined, myself).await;
        tracing::info!(nodes, first, took = ?started.elapsed(), "starting with the nodes not heard recently");
    }

    async fn survey_on(&mut self, myself: &ActorRef<Msg>) {
        let Some(name) = self.surveyed_to.take() else { return };
        let (committed, moment) = self.now();
        let part: Vec<&Arc<Node>> = committed.nodes().after::<str>(&name).take(SURVEYED_AT_ONCE).collect();
        let last = part.get(SURVEYED_AT_ONCE - 1).map(|last| last.meta.name.clone());
        // Updates about nodes that moved, or whose slot belonged to another node, are on their way. The other zone
        // has to get them too.
        let part: Vec<&Arc<Node>> = part.into_iter().filter(|node| !self.atlas.is_elsewhere(node)).collect();
        let rosters = self.place(part, moment);
        self.tell_of(rosters, ShardUpdate::joined, myself).await;
        self.surveyed_to = last;
        if self.surveyed_to.is_some() {
            myself.send_after(SURVEY_PAUSE, || Msg::Survey);
        }
    }

    /// Goes over the whole state in one go.
    async fn survey(&mut self, myself: &ActorRef<Msg>) {
        let (committed, moment) = self.now();
        self.surveyed_to = None;
        self.atlas.vacate_all_but(&committed);
        let rosters = self.place(committed.nodes().iter(), moment);
        for quarantined in self.context.quarantine.list() {
            self.review_quarantine(&committed, &quarantined.name);
        }
        let deserted: Vec<ZoneKey> = self.zones.keys().filter(|key| !rosters.contains_key(key)).cloned().collect();
        deserted.iter().for_each(|key| self.retire(key));
        self.tell_of(rosters, ShardUpdate::called, myself).await;
    }

    /// Sweeps over these nodes from now on. Returns which zones are to be told of which nodes.
    fn place<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = &'a Arc<Node>>,
        moment: Moment,
    ) -> BTreeMap<ZoneKey, ZoneRoster> {
        let mut rosters: BTreeMap<ZoneKey, ZoneRoster> = BTreeMap::new();
        for node in nodes {
            let zone = roster::zone_of(node);
            self.atlas.place(node, &zone, self.context.unheard_since(node, moment));
            roster::enlist(rosters.entry(zone).or_default(), node);
        }
        rosters
    }

    async fn tell_of(
        &mut self,
        rosters: BTreeMap<ZoneKey, ZoneRoster>,
        update: impl Fn(ZoneRoster) -> ShardUpdate<ZoneRoster>,
        myself: &ActorRef<Msg>,
    ) {
        for (key, roster) in rosters {
            self.deliver(key, update(roster), myself).await;
        }
    }

    /// Tells the zone in which each node was and the zone in which it is. A zone that was rebuilt while the tree
    /// grows has read the state and may know of nodes that have not been looked at here.
    async fn touched(&mut self, touched: Touched, myself: &ActorRef<Msg>) {
        let (committed, moment) = self.now();
        let mut parts: BTreeMap<ZoneKey, ShardUpdate<ZoneRoster>> = BTreeMap::new();
        let mut left: Vec<ZoneKey> = Vec::new();
        for (slot, name) in touched {
            self.review_quarantine(&committed, &name);
            let was_known = self.atlas.knows(slot);
            let (from, to) = match committed.node(&name).filter(|node| node.slot == slot) {
                None => (self.atlas.vacate(slot), None),
                Some(node) => {
                    let zone = roster::zone_of(node);
                    match self.atlas.place(node, &zone, self.context.unheard_since(node, moment)) {
                        Placed::AsBefore | Placed::New => (None, Some(zone)),
                        Placed::MovedFrom(from) => (Some(from), Some(zone)),
                    }
                }
            };
            let anywhere = self.zones.keys().filter(|_| self.surveyed_to.is_some() && !was_known);
            for zone in from.iter().chain(&to).chain(anywhere) {
                parts.entry(zone.clone()).or_default().touched.insert(slot, name.clone());
            }
            left.extend(from);
        }
        for key in left.iter().filter(|key| committed.census_of(key).is_deserted()) {
            parts.remove(key);
            self.retire(key);
        }
        for (key, part) in parts {
            self.deliver(key, part, myself).await;
        }
    }

    fn review_quarantine(&self, committed: &state::State, name: &str) {
        self.context.quarantine.release_other_than(name, || committed.node(name).map(|node| node.incarnation));
    }

    fn now(&self) -> (state::State, Moment) {
        let source = &self.context.ports.source;
        (source.state(), source.moment())
    }
}

// === rounds ===

impl State {
    async fn round(&mut self, myself: &ActorRef<Msg>) {
        self.read(myself).await;
        let (committed, moment) = self.now();
        self.heed(committed.policy());
        let hearings = self.sweep(committed.policy(), moment);
        self.rebuild_zones(myself).await;
        self.rebuild_clerks(myself).await;
        self.wake_clerks();
        self.lift(&committed, myself);
        let policy = committed.policy().clone();
        if self.next_assessment <= moment.stamp.cluster {
            self.next_assessment = oversight::next_assessment(&policy, moment.stamp.cluster);
            self.assess(myself);
        }
        self.pass_on(hearings, committed, moment);
        self.set_next_round(&policy, myself);
    }

    /// Agents come back at the pace of the policy's heartbeats.
    fn heed(&mut self, policy: &Policy) {
        if self.policy.as_ref() != Some(policy) {
            let mut blindness = self.context.ports.pulses.blindness();
            blindness.set_backoff_cap(duration(policy.beat_interval()));
            self.policy = Some(policy.clone());
        }
    }

    /// Uses the shorter of the two grace periods. Whether a node's own has passed is for its watch to decide.
    fn sweep(&mut self, policy: &Policy, moment: Moment) -> BTreeMap<Arc<ZoneKey>, Hearings> {
        let started = std::time::Instant::now();
        let judging = JudgingLoop::of(policy);
        let tables = self.context.ports.pulses.tables();
        let mut blindness = self.context.ports.pulses.blindness();
        blindness.tick(moment.tick, judging);
        let hearings = self.atlas.sweep(&tables, &blindness, judging.grace, moment.tick);
        drop(blindness);
        self.context.ports.observer.swept(started.elapsed(), self.atlas.silent());
        hearings
    }

    fn pass_on(&self, mut hearings: BTreeMap<Arc<ZoneKey>, Hearings>, committed: state::State, moment: Moment) {
        let round = Arc::new(JudgingRound {
            state: committed,
            tables: self.context.ports.pulses.tables(),
            moment,
            started: std::time::Instant::now(),
            observer: Arc::clone(&self.context.ports.observer),
        });
        for (key, zone) in self.zones.iter() {
            let hearings = hearings.remove(key).unwrap_or_default();
            let part = ShardUpdate { hearings, round: Some(Arc::clone(&round)), ..ShardUpdate::default() };
            zone.tell(|letters| letters.absorb(part));
        }
    }

    /// Missed rounds are not made up for.
    fn set_next_round(&mut self, policy: &Policy, myself: &ActorRef<Msg>) {
        let now = self.context.ports.source.moment().stamp.cluster;
        let pause = oversight::next_round(policy, now).0.saturating_sub(now.0);
        myself.send_after(Duration::from_millis(pause), || Msg::Round);
    }
}

// === zones ===

impl State {
    /// A zone that is about to be rebuilt reads the state instead.
    async fn deliver(&mut self, key: ZoneKey, part: ShardUpdate<ZoneRoster>, myself: &ActorRef<Msg>) {
        match self.zones.get(&key) {
            Some(zone) => zone.tell(|letters| letters.absorb(part)),
            None if self.zones.knows(&key) => {}
            None => self.spawn_zone(key, part, myself).await,
        }
    }

    fn retire(&mut self, key: &ZoneKey) {
        self.zones.retire(key);
        self.atlas.forget_zone_keys();
    }

    async fn rebuild_zones(&mut self, myself: &ActorRef<Msg>) {
        for key in self.zones.due(Instant::now()) {
            self.context.ports.observer.restarted(ActorKind::Zone);
            self.spawn_zone(key, ShardUpdate::rebuilt(), myself).await;
        }
    }

    async fn spawn_zone(&mut self, key: ZoneKey, first: ShardUpdate<ZoneRoster>, myself: &ActorRef<Msg>) {
        let (context, zone, cluster) = (Arc::clone(&self.context), key.clone(), myself.clone());
        let args = |letterbox| zone::Args { context, key: zone, cluster, letterbox };
        self.zones.spawn((ActorKind::Zone, key), zone::Actor, first, args, myself.get_cell()).await;
    }
}

// === clerks ===

impl State {
    fn wake_clerks(&self) {
        self.clerks.iter().for_each(|(_, clerk)| clerk.tell(|()| ()));
    }

    async fn rebuild_clerks(&mut self, myself: &ActorRef<Msg>) {
        for task in self.clerks.due(Instant::now()) {
            self.context.ports.observer.restarted(clerk::kind(task));
            self.spawn_clerk(task, myself).await;
        }
    }

    async fn spawn_clerk(&mut self, task: ClerkTask, myself: &ActorRef<Msg>) {
        let (context, cluster) = (Arc::clone(&self.context), myself.clone());
        let args = |letterbox| clerk::Args { context, task, cluster, letterbox };
        self.clerks.spawn((clerk::kind(task), task), clerk::Actor, (), args, myself.get_cell()).await;
    }
}

// === what concerns the fleet as a whole ===

impl State {
    fn assess(&mut self, myself: &ActorRef<Msg>) {
        let (committed, moment) = self.now();
        if self.assessing || !oversight::assessment_is_due(&committed, moment.stamp.cluster) {
            return;
        }
        if let Some(permit) = self.context.proposer.permit() {
            permit.propose(vec![LeaderOperation::AssessZones], false).report_to(myself.clone(), |_| Msg::Assessed);
            self.assessing = true;
        }
    }

    /// Evictions may have waited for the assessment, or have to be taken back.
    fn assessed(&mut self, myself: &ActorRef<Msg>) {
        self.assessing = false;
        let (committed, _) = self.now();
        self.lift(&committed, myself);
        self.zones.iter().for_each(|(_, zone)| zone.tell(|_| ()));
    }

    fn lift(&mut self, committed: &state::State, myself: &ActorRef<Msg>) {
        if self.lifting {
            return;
        }
        let Some(operation) = oversight::lift(committed) else { return };
        if let Some(permit) = self.context.proposer.permit() {
            permit.propose(vec![operation], false).report_to(myself.clone(), Msg::Lifted);
            self.lifting = true;
        }
    }

    fn lifted(&mut self, outcomes: &[ProposalOutcome], myself: &ActorRef<Msg>) {
        self.lifting = false;
        if outcomes.iter().all(ProposalOutcome::is_done) {
            let (committed, _) = self.now();
            self.lift(&committed, myself);
        }
    }
}

fn duration(period: Period) -> Duration {
    Duration::from_millis(period.0)
}
