//! Machines and their agents: they are created, beat, post, fall silent and end.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_lifecycle::command::{AgentOperation, Command, LeaderOperation, OperatorOperation, Origin, Outcome};
use muster_lifecycle::node::{ConditionStatus, Node, NodeStatus};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_pulse::tick::Tick;

use super::machine::{Home, InitialReady};
use super::pod::PodSpec;
use super::{CLUSTER_TIME_AT_START, MachineIndex, Millis, REPLICAS, ReplicaIndex, Witness, World};

/// Nothing is older than the cluster itself.
const FOUNDED_BEFORE_START: i64 = 2 * 366 * 24 * 3_600_000;

// === the beginning ===

impl<W: Witness> World<W> {
    /// Creates what was there before the start, each node at the moment of its creation.
    pub(super) fn found(&mut self, policy: Policy, pods: &BTreeMap<Text, PodSpec>) -> Result<(), Rejection> {
        let mut by_creation: BTreeMap<i64, Vec<MachineIndex>> = BTreeMap::new();
        for (place, machine) in self.machines.iter().enumerate() {
            by_creation.entry(machine.spec.created).or_default().push(place);
        }
        let founding = LeaderOperation::FoundPolicy { policy: Box::new(policy) };
        let origin = Origin::Controller { term: self.term };
        self.write_down(
            stamp(-FOUNDED_BEFORE_START),
            vec![Command { origin, request: None, operation: founding.into() }],
        )?;
        for (created, places) in by_creation {
            match Millis::try_from(created) {
                Ok(later) if later > 0 => drop(self.births.insert(later, places)),
                Ok(_) | Err(_) => {
                    let commands = places.iter().map(|place| self.creation(*place)).collect();
                    self.write_down(stamp(created), commands)?;
                }
            }
        }
        self.found_pods(pods)?;
        self.take_the_lead_at_start();
        Ok(())
    }

    pub(super) fn write_down(&mut self, at: Stamp, commands: Vec<Command>) -> Result<(), Rejection> {
        let outcomes = self.apply_at(at, commands);
        outcomes.into_iter().try_for_each(|outcome| match outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Rejected(rejection) => Err(rejection),
        })
    }

    /// The world does not begin with a take-over: its leader has led for long. NH-4a: a node that has a status counts
    /// as heard at the start. NH-2: the grace period of any other node runs from its creation.
    fn take_the_lead_at_start(&mut self) {
        let has_posted = |place: &MachineIndex| self.machines[*place].spec.ready != InitialReady::NeverPosted;
        (0..self.machines.len()).filter(has_posted).collect::<Vec<_>>().into_iter().for_each(|place| self.beat(place));
        self.lead(0, Tick::ZERO);
    }

    fn creation(&mut self, place: MachineIndex) -> Command {
        let draft = Box::new(self.machines[place].initial_draft());
        by_operator(OperatorOperation::CreateNode { draft, uid: self.next_uid() })
    }

    /// A machine is created after the start.
    pub(super) fn bear(&mut self, place: MachineIndex) {
        let creation = self.creation(place);
        self.submit(creation);
    }

    pub(super) fn joined(&mut self, node: &Node) {
        let Some(place) = self.machine(&node.meta.name) else { return };
        self.machines[place].node = Some((node.slot, node.incarnation));
        self.begin(place);
    }

    pub(super) fn left(&mut self, node: &Node) {
        let Some(place) = self.machine(&node.meta.name) else { return };
        self.machines[place].node = None;
        self.machines[place].stop();
        self.depart(place, node);
    }

    fn begin(&mut self, place: MachineIndex) {
        let machine = &mut self.machines[place];
        if machine.node.is_some() && !machine.is_silenced() {
            machine.begin(self.now);
            self.reschedule(place);
        }
    }
}

// === what a caller can have a machine do ===

impl<W: Witness> World<W> {
    /// The machine sends no lease, no status and no pod reports any more.
    pub fn silence(&mut self, place: MachineIndex) {
        self.machines[place].fall_silent();
    }

    /// The machine sends at once a beat and a status with all conditions healthy, then both at their intervals.
    pub fn resume(&mut self, place: MachineIndex) {
        let machine = &mut self.machines[place];
        machine.come_back();
        if machine.node.is_none() {
            return;
        }
        machine.go_on_from(self.now);
        self.reschedule(place);
        self.beat(place);
        let status = self.machines[place].last_said();
        self.report(place, status);
    }

    /// The machine posts one status, with these conditions merged into its last one.
    pub fn post(&mut self, place: MachineIndex, conditions: &BTreeMap<Text, ConditionStatus>) {
        self.machines[place].say(conditions);
        self.beat(place);
        let status = self.machines[place].last_said();
        self.report(place, status);
    }

    /// The machine renews its lease once.
    pub fn renew(&mut self, place: MachineIndex) {
        self.beat(place);
    }

    /// The machine's agent starts: it registers its node, beats, and posts a healthy status.
    pub fn register(&mut self, place: MachineIndex) {
        let machine = &mut self.machines[place];
        machine.come_back();
        self.end_departure(place);
        let machine = &self.machines[place];
        let (name, draft) = (machine.spec.name.clone(), Box::new(machine.registration()));
        self.says_of_stopped(place).into_iter().for_each(|command| self.submit(command));
        // The pods of a former life have stopped by now.
        let operation = AgentOperation::RegisterNode { draft, uid: self.next_uid(), running: Some(Vec::new()) };
        self.submit(Command { origin: Origin::Node { name }, request: None, operation: operation.into() });
        self.says_of_well(place).into_iter().for_each(|command| self.submit(command));
        self.begin(place);
    }
}

// === signals ===

impl<W: Witness> World<W> {
    /// Everything that machines do by themselves at this instant, by name.
    pub(super) fn hear_machines(&mut self) {
        let mut reports = Vec::new();
        while let Some(Reverse((at, place))) = self.agenda.peek().copied().filter(|Reverse((at, _))| *at <= self.now) {
            self.agenda.pop();
            if self.machines[place].next_due() == Some(at) {
                reports.extend(self.act(place));
                self.reschedule(place);
            }
        }
        if !reports.is_empty() {
            self.apply(reports);
        }
    }

    /// The reports that are due to be written: a status, with the pod reports.
    fn act(&mut self, place: MachineIndex) -> Vec<Command> {
        if let Home::Adrift { until } = self.machines[place].home
            && until <= self.now
        {
            self.attach(place, &[]);
        }
        let due = self.machines[place].take_due(self.now);
        if due.beat || due.status {
            self.beat(place);
        }
        if !due.status {
            return Vec::new();
        }
        let status = self.machines[place].status();
        self.reported(place, status)
    }

    fn beat(&mut self, place: MachineIndex) {
        let machine = &self.machines[place];
        let (Some((slot, _)), Home::Attached(home)) = (machine.node, machine.home) else { return };
        if self.replicas[home].hear(slot, self.now) {
            self.witness.heard(self.now, slot, home);
        }
    }

    fn report(&mut self, place: MachineIndex, status: NodeStatus) {
        let commands = self.reported(place, status);
        if !commands.is_empty() {
            self.apply(commands);
        }
    }

    /// Without a leader that can write, the newest status waits; earlier ones no longer matter.
    fn reported(&mut self, place: MachineIndex, status: NodeStatus) -> Vec<Command> {
        let can_write = self.can_write();
        let machine = &mut self.machines[place];
        let Some((_, incarnation)) = machine.node else { return Vec::new() };
        if !can_write {
            machine.unwritten = true;
            return Vec::new();
        }
        let (name, is_there) = (machine.spec.name.clone(), machine.is_there());
        let is_well = status.ready().is_some_and(|ready| ready.status == ConditionStatus::True);
        let stopped = is_there.then(|| self.says_of_stopped(place)).flatten();
        let well = (is_there && is_well).then(|| self.says_of_well(place)).flatten();
        let status = Box::new(status);
        let operation = AgentOperation::ReportStatus { name: name.clone(), incarnation, status, running: None };
        let says = Command { origin: Origin::Node { name }, request: None, operation: operation.into() };
        stopped.into_iter().chain([says]).chain(well).collect()
    }

    /// Writes what operators and nodes sent while there was no leader that could write.
    pub(super) fn write_down_what_waited(&mut self) {
        for command in std::mem::take(&mut self.waiting) {
            self.apply(vec![command]);
        }
        let mut reports = Vec::new();
        for place in 0..self.machines.len() {
            if std::mem::take(&mut self.machines[place].unwritten) {
                let status = self.machines[place].last_said();
                reports.extend(self.reported(place, status));
            }
        }
        if !reports.is_empty() {
            self.apply(reports);
        }
    }

    fn reschedule(&mut self, place: MachineIndex) {
        if let Some(due) = self.machines[place].next_due() {
            self.agenda.push(Reverse((due, place)));
        }
    }
}

// === attachment ===

impl<W: Witness> World<W> {
    /// The agents of a replica that died notice it, and look for another one.
    pub(super) fn cast_adrift(&mut self, replica: ReplicaIndex, until: Millis) {
        for place in 0..self.machines.len() {
            if self.machines[place].home == Home::Attached(replica) {
                self.machines[place].home = Home::Adrift { until };
                self.reschedule(place);
            }
        }
    }

    /// A replica that lost the leader tells its agents to move. They stay until another one takes them.
    pub(super) fn send_away(&mut self, replica: ReplicaIndex) {
        for place in 0..self.machines.len() {
            if self.machines[place].home == Home::Attached(replica) {
                self.attach(place, &[replica]);
            }
        }
    }

    /// Attaching is a sign of life.
    fn attach(&mut self, place: MachineIndex, except: &[ReplicaIndex]) {
        let alive = |index: &ReplicaIndex| self.replicas[*index].alive && !except.contains(index);
        let in_contact: Vec<_> = (0..REPLICAS).filter(alive).filter(|index| self.is_in_contact(*index)).collect();
        let any: Vec<_> = (0..REPLICAS).filter(alive).collect();
        let choices = if in_contact.is_empty() { any } else { in_contact };
        let Some(home) = choices.get(place / REPLICAS % choices.len().max(1)) else { return };
        self.machines[place].home = Home::Attached(*home);
        if self.machines[place].has_agent() {
            self.beat(place);
        }
    }
}

pub(super) fn by_operator(operation: OperatorOperation) -> Command {
    Command { origin: Origin::Operator { user: Text::from("operator") }, request: None, operation: operation.into() }
}

/// A moment before the start, or the start itself.
pub(super) fn stamp(at: i64) -> Stamp {
    Stamp { cluster: ClusterTime(CLUSTER_TIME_AT_START.saturating_add_signed(at)), wall: WallTime(at) }
}
