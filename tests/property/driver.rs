//! The driver of a random run: a fleet, a policy, and then one random action of operators, machines or faults after
//! the other.
//!
//! Faults stay within what three replicas can bear: one of them stands still or is cut off at a time, and machines
//! that live beat at the interval they are told. Within that, nothing is too unlikely.

use std::collections::BTreeMap;

use muster_cli::simulate::world::failure::Fall;
use muster_cli::simulate::world::{DIGEST_PERIOD, MachineSpec, Millis, REPLICAS, World};
use muster_lifecycle::command::{OperatorOperation, Precondition};
use muster_lifecycle::invariant;
use muster_lifecycle::node::{ConditionStatus, READY};
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::EXCLUDE_DISRUPTION_LABEL;

use crate::dice::Dice;
use crate::fleet::{ZONE_LABEL, ZONES, machine, policy};
use crate::oracle::{Oracle, Tally};

const HOUR: Millis = 3_600_000;

/// Checking every invariant of the state walks all of its records.
const ACTIONS_PER_CHECK: u64 = 500;

/// The longest time for which an excuse of ours may hold back a verdict.
const EXCUSED_MAX: Millis = 120_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) length: Millis,
    /// No machine ever falls silent.
    pub(crate) healthy: bool,
    pub(crate) wall_jumps: bool,
    pub(crate) verbose: bool,
}

pub(crate) struct Report {
    pub(crate) violation: Option<String>,
    pub(crate) tally: Tally,
    pub(crate) trace: u64,
    pub(crate) wall_jumps: u64,
}

struct Driver {
    dice: Dice,
    plan: Plan,
    world: World<Oracle>,
    names: Vec<Text>,
    /// The shortest grace that this run's policies have.
    grace: Millis,
    /// Until when one replica is disturbed, and by what.
    disturbed: Option<(Millis, Disturbance)>,
    /// Links that lose digests for a moment.
    lossy: Vec<(Millis, usize, usize)>,
    wall_jumps: u64,
}

#[derive(Debug, Clone, Copy)]
enum Disturbance {
    Stall,
    Isolation(usize),
}

impl Plan {
    /// Every fifth seed has a fleet in which every node lives.
    pub(crate) fn of(seed: u64, hours: u64) -> Self {
        Self { length: hours * HOUR, healthy: seed.is_multiple_of(5), wall_jumps: true, verbose: false }
    }
}

pub(crate) fn run(seed: u64, plan: Plan) -> Report {
    let mut driver = Driver::new(seed, plan);
    driver.go();
    if driver.world.witness().violation.is_none() {
        driver.settle();
    }
    let oracle = driver.world.witness();
    Report {
        violation: oracle.violation.clone(),
        tally: oracle.tally,
        trace: oracle.trace,
        wall_jumps: driver.wall_jumps,
    }
}

// === the beginning ===

impl Driver {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed);
        let grace = dice.pick(&[8_000, 16_000, 40_000]);
        let policy = policy(&mut dice, grace);
        let interval = policy.beat_interval().0;
        let zones = dice.between(1, ZONES.len() as u64) as usize;
        let machines: Vec<MachineSpec> =
            (0..dice.between(6, 40)).map(|index| machine(&mut dice, index, zones, interval)).collect();
        let names = machines.iter().map(|machine| machine.name.clone()).collect();
        let mut world = World::new(policy, machines, Oracle::default()).unwrap();
        *world.witness_mut() = Oracle::new(world.state(), plan.verbose);
        Self { dice, plan, world, names, grace, disturbed: None, lossy: Vec::new(), wall_jumps: 0 }
    }
}

// === time ===

impl Driver {
    fn go(&mut self) {
        let mut checked = 0;
        while self.world.now() < self.plan.length && self.world.witness().violation.is_none() {
            let pause = self.dice.between(1, 30) * 100;
            self.pass(self.world.now() + pause);
            self.act();
            let actions = self.world.witness().tally.actions;
            if actions >= checked + ACTIONS_PER_CHECK {
                checked = actions;
                self.check_state();
            }
        }
    }

    /// Lets time pass, and ends disturbances whose time is over.
    fn pass(&mut self, until: Millis) {
        loop {
            let ends = self.lossy.iter().map(|(at, ..)| *at).chain(self.disturbed.map(|(at, _)| at)).min();
            let Some(at) = ends.filter(|at| *at <= until) else { break };
            self.world.run_to(at);
            self.end(at);
        }
        self.world.run_to(until);
    }

    fn end(&mut self, now: Millis) {
        if let Some((_, disturbance)) = self.disturbed.take_if(|(at, _)| *at <= now)
            && let Disturbance::Isolation(replica) = disturbance
        {
            self.isolate(replica, false);
        }
        let (over, lossy): (Vec<_>, Vec<_>) = self.lossy.iter().partition(|(at, ..)| *at <= now);
        self.lossy = lossy;
        over.into_iter().for_each(|(_, listener, teller)| self.world.set_cut(listener, teller, false));
    }

    fn end_everything(&mut self) {
        while let Some(at) = self.lossy.iter().map(|(at, ..)| *at).chain(self.disturbed.map(|(at, _)| at)).max() {
            self.pass(at);
        }
    }

    /// I-23: faults off, and time to see which nodes are dead.
    fn settle(&mut self) {
        self.end_everything();
        // The longest time without a leader after a fall.
        self.pass(self.world.now() + 10_000);
        let quiet_from = self.world.now();
        let policy = self.world.state().policy().clone();
        let patience = policy.node_monitor_grace_period.max(policy.node_startup_grace_period).0
            + EXCUSED_MAX
            + policy.sweep_period().0;
        self.pass(quiet_from + patience);
        let spared = self.world.state().policy_state().spared_until().map_or(0, |until| self.world.instant_of(until));
        self.pass(spared.max(quiet_from + patience) + policy.node_monitor_grace_period.0 + policy.sweep_period().0);
        let state = self.world.state().clone();
        self.world.witness_mut().check_liveness(quiet_from, &state);
        self.check_state();
    }

    fn check_state(&mut self) {
        if let Err(violation) = invariant::check_all(self.world.state()) {
            self.world.witness_mut().violation = Some(violation.to_string());
        }
    }
}

// === what happens ===

impl Driver {
    fn act(&mut self) {
        self.world.witness_mut().tally.actions += 1;
        match self.dice.below(100) {
            0..20 if !self.plan.healthy => self.silence(),
            20..40 => self.resume(),
            40..45 => self.speak_from_the_grave(),
            45..50 => self.fall(),
            50..57 => self.stall(),
            57..62 => self.cut_off(),
            62..75 => self.lose_digests(),
            75..80 => self.jump(),
            80..97 => self.administer(),
            97..99 if !self.plan.healthy => self.lights_out(),
            _ => {}
        }
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.plan.verbose {
            println!("{} -- {what}", self.world.now());
        }
    }

    fn any_place(&mut self) -> usize {
        self.dice.below(self.names.len())
    }

    fn silence_one(&mut self, place: usize) {
        let now = self.world.now();
        self.tell(format_args!("{} falls silent", self.names[place]));
        self.world.silence(place);
        self.world.witness_mut().fell_silent(&self.names[place], now);
    }

    fn silence(&mut self) {
        for _ in 0..self.dice.between(1, 4) {
            let place = self.any_place();
            self.silence_one(place);
        }
    }

    /// Silences a whole zone, or all nodes.
    fn lights_out(&mut self) {
        let zone = self.dice.pick(&[Some(ZONES[0]), Some(ZONES[1]), None]);
        for place in 0..self.names.len() {
            let node = self.world.state().node(&self.names[place]).cloned();
            let lives_there =
                |wanted| node.is_some_and(|node| node.meta.labels.get(ZONE_LABEL).is_some_and(|own| *own == wanted));
            if zone.is_none_or(lives_there) {
                self.silence_one(place);
            }
        }
    }

    fn resume(&mut self) {
        let count = if self.dice.one_in(6) { self.names.len() as u64 } else { self.dice.between(1, 4) };
        for _ in 0..count {
            let place = self.any_place();
            self.tell(format_args!("{} comes back", self.names[place]));
            self.world.resume(place);
            let now = self.world.now();
            self.world.witness_mut().came_back(&self.names[place], now);
        }
    }

    /// A machine that is otherwise silent renews its lease, or posts once.
    fn speak_from_the_grave(&mut self) {
        let place = self.any_place();
        let now = self.world.now();
        if !self.world.witness().is_silent(&self.names[place]) {
            return;
        }
        if self.dice.one_in(2) {
            self.world.renew(place);
        } else {
            let status = self.dice.pick(&[ConditionStatus::True, ConditionStatus::False]);
            self.world.post(place, &BTreeMap::from([(Text::from(READY), status)]));
        }
        self.world.witness_mut().fell_silent(&self.names[place], now);
    }

    fn fall(&mut self) {
        if matches!(self.disturbed, Some((_, Disturbance::Isolation(_)))) {
            return;
        }
        let Some(leader) = self.world.leader() else { return };
        let fall = self.dice.pick(&[Fall::Dies, Fall::IsDeposed]);
        let downtime = self.dice.pick(&[0, 100, 1_300, 3_000, 6_000]);
        if fall == Fall::Dies {
            self.world.witness_mut().died(leader);
        }
        self.tell(format_args!("replica {leader} {fall:?}, no leader for {downtime} ms"));
        self.world.fail_over(downtime, fall);
    }

    /// Stalls any replica; longest where agents have time to notice.
    fn stall(&mut self) {
        if self.disturbed.is_some() {
            return;
        }
        let replica = self.dice.below(REPLICAS);
        let longest = if self.grace >= 40_000 { 25_000 } else { self.grace / 2 };
        let length = self.dice.between(3, longest / 100) * 100;
        let until = self.world.now() + length;
        let policy = self.world.state().policy();
        let unnoticed = policy.sweep_period().0 + (policy.node_monitor_grace_period.0 / 10).max(1_000);
        if self.world.leader() == Some(replica) && length > unnoticed {
            self.world.witness_mut().stalled(until);
        }
        self.tell(format_args!("replica {replica} stands still until {until}"));
        self.world.stall(replica, until);
        self.disturbed = Some((until, Disturbance::Stall));
    }

    /// Cuts a follower off from all others, both ways.
    fn cut_off(&mut self) {
        let (None, Some(leader)) = (self.disturbed, self.world.leader()) else { return };
        let replica = (leader + self.dice.between(1, 2) as usize) % REPLICAS;
        let until = self.world.now() + self.dice.between(5, 600) * 100;
        // The end of a loss must not mend one direction of the cut.
        self.lossy.clear();
        self.tell(format_args!("replica {replica} is cut off until {until}"));
        self.isolate(replica, true);
        self.disturbed = Some((until, Disturbance::Isolation(replica)));
    }

    /// Every link that was lossy before is whole again, unless it is one of those cut.
    fn isolate(&mut self, replica: usize, cut: bool) {
        for listener in 0..REPLICAS {
            (0..REPLICAS).for_each(|teller| self.world.set_cut(listener, teller, false));
        }
        for peer in (0..REPLICAS).filter(|peer| *peer != replica) {
            self.world.set_cut(replica, peer, cut);
            self.world.set_cut(peer, replica, cut);
        }
    }

    fn lose_digests(&mut self) {
        if matches!(self.disturbed, Some((_, Disturbance::Isolation(_)))) {
            return;
        }
        let listener = self.dice.below(REPLICAS);
        let teller = (listener + self.dice.between(1, 2) as usize) % REPLICAS;
        let until = self.world.now() + self.dice.between(1, 4) * DIGEST_PERIOD;
        self.tell(format_args!("replica {listener} does not hear replica {teller} until {until}"));
        self.world.set_cut(listener, teller, true);
        self.lossy.push((until, listener, teller));
    }

    fn jump(&mut self) {
        let (replica, offset) = (self.dice.below(REPLICAS), self.dice.pick(&[-3_600_000, 3_600_000, 0]));
        if self.plan.wall_jumps {
            self.wall_jumps += 1;
            self.world.set_wall_offset(replica, offset);
        }
    }
}

// === operators ===

impl Driver {
    fn administer(&mut self) {
        let place = self.any_place();
        let name = self.names[place].clone();
        let precondition = Precondition::default();
        let zone = Text::from(self.dice.pick(&ZONES));
        let label = |key: &str, value: Option<Text>| OperatorOperation::LabelNode {
            name: name.clone(),
            changes: vec![(Text::from(key), value)],
            overwrite: true,
            precondition,
        };
        let operation = match self.dice.below(12) {
            0..3 => OperatorOperation::CordonNode { name, unschedulable: self.dice.one_in(2), precondition },
            3..5 => self.taint(name),
            5..7 => label(ZONE_LABEL, Some(zone)),
            7 => label(EXCLUDE_DISRUPTION_LABEL, self.dice.one_in(2).then(Text::default)),
            8 => OperatorOperation::DeleteNode { name, precondition },
            9..11 => return self.create(place),
            _ => self.new_policy(),
        };
        self.world.operate(operation);
    }

    /// Some taint of a user, or the very taint that evictions add.
    fn taint(&mut self, name: Text) -> OperatorOperation {
        let taint = self.dice.pick(&["k=v:NoExecute", "k:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]);
        let (add, remove) = match self.dice.one_in(2) {
            true => (vec![taint.parse().unwrap()], Vec::new()),
            false => (Vec::new(), vec![taint.parse().unwrap()]),
        };
        OperatorOperation::TaintNode { name, add, remove, overwrite: true, precondition: Precondition::default() }
    }

    fn create(&mut self, place: usize) {
        self.world.register(place);
        let now = self.world.now();
        self.world.witness_mut().came_back(&self.names[place], now);
    }

    fn new_policy(&mut self) -> OperatorOperation {
        let grace = self.dice.pick(&[self.grace, 2 * self.grace]);
        let settings = policy(&mut self.dice, grace).settings();
        let changes = settings.into_iter().map(|(name, value)| (Text::from(name), Text::from(value))).collect();
        OperatorOperation::SetPolicy { changes }
    }
}
