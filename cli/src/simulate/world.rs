//! A whole cluster in virtual time: machines, three replicas and the replicated state, with the product's own cores.
//!
//! ```text
//!   machines --beat--> replica tables --digests--> the leader's tables --sweep--> NodeWatch --> Operation
//!      |                                                                                         |
//!      +--status--> ReportStatus --------------------------> State::apply <----------------------+
//!      +--pods----> ReportPods                                    |                              |
//!      ^                                                          +--pods, workloads--> clerks --+
//!      +---bound, deleted pods------------------------------------+
//! ```
//!
//! Nothing sleeps and nothing is random: the same calls give the same world. Time stands still until the caller moves
//! it. The order within one instant: first what the caller does, then beats and statuses by name, then digests, then
//! the leader's rounds, and then its clerk tasks.

mod agents;
pub mod failure;
mod leader;
pub mod led;
mod machine;
mod network;
mod pod;
mod replica;
mod rounds;
mod runs;
mod tenants;
mod witness;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::command::{Batch, Command, OperatorOperation, Outcome, Position};
use muster_lifecycle::invariant::runs::RunHistory;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp};
use muster_pulse::moment::Moment;

use self::failure::Succession;
use self::leader::Leader;
use self::machine::Machine;
use self::replica::Replica;
use self::runs::Departure;

pub use self::machine::{InitialReady, MachineSpec};
pub use self::pod::{NAMESPACE, PodSpec};
pub use self::witness::Witness;

/// Milliseconds since the start of the world.
pub type Millis = u64;

/// Counts from zero; the replica's id is one higher.
pub type ReplicaIndex = usize;

/// A machine's place in the order of names.
pub type MachineIndex = usize;

pub const REPLICAS: usize = 3;

/// How often replicas tell each other which nodes they heard.
pub const DIGEST_PERIOD: Millis = 250;

const YEAR: u64 = 366 * 24 * 3_600_000;

/// High enough that nodes may be created long before the start.
pub const CLUSTER_TIME_AT_START: u64 = 2 * YEAR;

const FIRST_TERM: u64 = 1;

/// The driver that decides for the leader of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The product's judging functions, called by the world itself.
    Judge,
    /// A caller that is told what was committed and makes the proposals: the product's actors, in a test.
    Elsewhere,
}

pub struct World<W> {
    now: Millis,
    state: State,
    term: u64,
    index: u64,
    uids: u128,
    replicas: Vec<Replica>,
    /// Whether the link from teller to listener is cut.
    cut: [[bool; REPLICAS]; REPLICAS],
    /// The replica that leads.
    leader: Option<ReplicaIndex>,
    /// The driver of the leader: the judging functions themselves, or a caller of [`World::propose`].
    driver: Driver,
    /// While the judging functions decide: what the leader holds between two rounds.
    brain: Option<Leader>,
    /// The commits that a driver elsewhere has not taken yet.
    news: Vec<Arc<Change>>,
    succession: Option<Succession>,
    /// Writes that wait for a leader.
    waiting: Vec<Command>,
    machines: Vec<Machine>,
    places: BTreeMap<Text, MachineIndex>,
    /// When each machine may have something to do. Entries that no longer hold are skipped.
    agenda: BinaryHeap<Reverse<(Millis, MachineIndex)>>,
    /// Machines that are created later.
    births: BTreeMap<Millis, Vec<MachineIndex>>,
    next_digest: Millis,
    /// Machines that have pods to start or to stop.
    errands: BTreeSet<MachineIndex>,
    /// What the machines really ran.
    runs: RunHistory,
    departures: BTreeMap<MachineIndex, Departure>,
    policy: Policy,
    witness: W,
}

// === impl World ===

impl<W: Witness> World<W> {
    /// The machines' names must differ. Fails if a rule refuses a machine or the policy.
    pub fn new(policy: Policy, specs: Vec<MachineSpec>, witness: W) -> Result<Self, Rejection> {
        Self::with_pods(policy, specs, &BTreeMap::new(), Driver::Judge, witness)
    }

    /// As [`World::new`], with pods that are there from the start, and a driver.
    pub fn with_pods(
        policy: Policy,
        specs: Vec<MachineSpec>,
        pods: &BTreeMap<Text, PodSpec>,
        driver: Driver,
        witness: W,
    ) -> Result<Self, Rejection> {
        let backoff_cap = backoff_cap(&policy);
        let mut specs = specs;
        specs.sort_by(|left, right| left.name.cmp(&right.name));
        let machines: Vec<Machine> =
            specs.into_iter().enumerate().map(|(place, spec)| Machine::new(spec, place % REPLICAS)).collect();
        let places = machines.iter().enumerate().map(|(place, machine)| (machine.spec.name.clone(), place)).collect();
        let mut world = Self {
            now: 0,
            state: State::new(),
            term: FIRST_TERM,
            index: 0,
            uids: 0,
            replicas: (0..REPLICAS).map(|index| Replica::at_start(index, backoff_cap)).collect(),
            cut: [[false; REPLICAS]; REPLICAS],
            leader: None,
            driver,
            brain: None,
            news: Vec::new(),
            succession: None,
            waiting: Vec::new(),
            machines,
            places,
            agenda: BinaryHeap::new(),
            births: BTreeMap::new(),
            next_digest: 0,
            errands: BTreeSet::new(),
            runs: RunHistory::default(),
            departures: BTreeMap::new(),
            policy: policy.clone(),
            witness,
        };
        world.found(policy, pods)?;
        Ok(world)
    }

    /// The instant of a cluster time, counted from the start.
    pub fn instant_of(&self, time: ClusterTime) -> Millis {
        time.0.saturating_sub(CLUSTER_TIME_AT_START)
    }

    pub fn now(&self) -> Millis {
        self.now
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn witness(&self) -> &W {
        &self.witness
    }

    pub fn witness_mut(&mut self) -> &mut W {
        &mut self.witness
    }

    pub fn machine(&self, name: &str) -> Option<MachineIndex> {
        self.places.get(name).copied()
    }

    /// The earliest instant at which something happens by itself.
    pub fn next_instant(&self) -> Millis {
        let rounds = self.brain.as_ref().filter(|_| self.can_write()).map(Leader::next_instant);
        let wakings = self.replicas.iter().filter_map(|replica| replica.stalled_until);
        let agenda = self.agenda.peek().map(|Reverse((at, _))| *at);
        let births = self.births.keys().next().copied();
        let others = [Some(self.next_digest), agenda, births, self.succession.as_ref().map(|next| next.at)];
        let next = rounds.into_iter().chain(wakings).chain(others.into_iter().flatten()).min();
        next.map_or(self.now, |next| next.max(self.now))
    }

    /// Moves time on; nothing that should have happened may be skipped, so never beyond [`World::next_instant`].
    pub fn move_to(&mut self, at: Millis) {
        self.now = self.now.max(at);
        self.wake_the_stalled();
        self.succeed();
        while let Some(birth) = self.births.first_entry().filter(|birth| *birth.key() <= self.now) {
            birth.remove().into_iter().for_each(|machine| self.bear(machine));
        }
    }

    /// Everything that happens by itself at this instant.
    pub fn finish_instant(&mut self) {
        self.succeed();
        self.hear_machines();
        if self.next_digest <= self.now {
            self.exchange_digests();
            self.next_digest = next_multiple(self.now, DIGEST_PERIOD);
            self.follow_departures();
        }
        self.rounds();
    }

    /// Everything up to and including this moment, without interference.
    pub fn run_to(&mut self, at: Millis) {
        while self.next_instant() <= at {
            self.move_to(self.next_instant());
            self.finish_instant();
        }
        self.now = self.now.max(at);
    }

    /// Lets time pass in which nothing happens by itself.
    pub fn pass_to(&mut self, at: Millis) {
        self.now = self.now.max(at);
    }

    /// A write by an operator, as soon as there is a leader.
    pub fn operate(&mut self, operation: OperatorOperation) {
        self.submit(agents::by_operator(operation));
    }

    fn submit(&mut self, command: Command) {
        match self.can_write() {
            true => drop(self.apply(vec![command])),
            false => self.waiting.push(command),
        }
    }

    /// Whether there is a leader and its process runs.
    pub fn can_write(&self) -> bool {
        self.leader.is_some_and(|leader| self.replicas[leader].is_awake())
    }

    fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        let stamp = self.stamp();
        self.apply_at(stamp, commands)
    }

    fn apply_at(&mut self, stamp: Stamp, commands: Vec<Command>) -> Vec<Outcome> {
        for command in &commands {
            self.witness.proposed(self.now, command, &self.state);
        }
        self.index += 1;
        let batch = Batch { stamp, commands };
        let applied = self.state.apply(Position { term: self.term, index: self.index }, &batch);
        self.note_runs(&batch.commands);
        for (command, outcome) in batch.commands.iter().zip(&applied.outcomes) {
            self.witness.decided(self.now, command, outcome);
        }
        for change in &applied.changes {
            self.learn(change);
        }
        self.heed_policy();
        self.run_errands();
        applied.outcomes
    }

    fn learn(&mut self, change: &Change) {
        let moment = self.moment();
        if self.leader.is_some() {
            self.witness.changed(self.now, change);
        }
        match (&mut self.brain, self.driver) {
            (Some(leader), _) => leader.learn(change, moment),
            (None, Driver::Elsewhere) => self.news.push(Arc::new(change.clone())),
            (None, Driver::Judge) => {}
        }
        match (&change.before, &change.after) {
            (None, Some(Object::Node(node))) => self.joined(node),
            (Some(Object::Node(node)), None) => self.left(node),
            (Some(_), Some(Object::Node(node))) => self.note_given_up(node),
            (_, Some(Object::Pod(_))) => self.note_errand(change),
            (Some(_) | None, Some(_) | None) => {}
        }
    }

    fn heed_policy(&mut self) {
        if self.policy == *self.state.policy() {
            return;
        }
        self.policy = self.state.policy().clone();
        let backoff_cap = backoff_cap(&self.policy);
        self.replicas.iter_mut().for_each(|replica| replica.pulses.blindness().set_backoff_cap(backoff_cap));
    }

    /// Now, on the leader's clocks.
    pub fn moment(&self) -> Moment {
        let replica = self.leader.unwrap_or(0);
        Moment { tick: self.replicas[replica].tick(self.now), stamp: self.stamp() }
    }

    fn stamp(&self) -> Stamp {
        let replica = self.leader.unwrap_or(0);
        self.replicas[replica].stamp(self.now)
    }

    fn cluster_now(&self) -> ClusterTime {
        self.stamp().cluster
    }

    fn next_uid(&mut self) -> Uid {
        self.uids += 1;
        Uid(self.uids)
    }
}

/// The longest pause of an agent between two attempts to connect.
fn backoff_cap(policy: &Policy) -> Duration {
    Duration::from_millis(policy.beat_interval().0)
}

/// The first multiple of `period` after `now`.
fn next_multiple(now: Millis, period: Millis) -> Millis {
    let period = period.max(1);
    (now / period).saturating_add(1).saturating_mul(period)
}
