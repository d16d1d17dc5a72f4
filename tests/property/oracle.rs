//! The oracle: checks the invariants from the outside, by which node really beat when, through which replica.
//!
//! The oracle has none of the product's code for pulses, excuses, buckets or zones. It keeps the truth in plain maps
//! and redoes the arithmetic the slow way.

use std::collections::{BTreeMap, BTreeSet};

use muster_cli::simulate::world::{Millis, REPLICAS, ReplicaIndex, Witness};
use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::command::{AgentOperation, Command, LeaderOperation, Operation, Outcome};
use muster_lifecycle::disruption::Transition;
use muster_lifecycle::node::{ConditionStatus, Node, Slot};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::{EXCLUDE_DISRUPTION_LABEL, ZoneKey, ZoneState};

/// Ages between replicas are told in steps of this, rounded up.
const QUANTUM: Millis = 10;

/// One eviction, in billionths: what a millisecond at a rate of one millionth per second gives back.
const ONE: u64 = 1_000_000_000;

/// A leader must have known everything for so long, and with no longer gaps, to take over as if nothing had happened.
const SETTLED_FOR: Millis = 120_000;
const GAP_MAX: Millis = 5_000;

/// When each slot was heard, by index.
type Receipts = Vec<Option<(Slot, Millis)>>;

#[derive(Default)]
pub(crate) struct Oracle {
    /// The beats that each replica heard itself.
    heard: [Receipts; REPLICAS],
    /// The beats that each replica knows, heard itself or told.
    known: [Receipts; REPLICAS],
    /// Which peers have nothing new to tell a replica.
    told: [[bool; REPLICAS]; REPLICAS],
    /// When each replica was told in this life, by each other, all that it had heard; the last few minutes of it.
    told_at: [[Vec<Millis>; REPLICAS]; REPLICAS],
    /// Which replicas were restarted after the world began.
    reborn: [bool; REPLICAS],
    leader: ReplicaIndex,
    led_since: Millis,
    /// Whether the leader, when it took over, had known all along what the others heard.
    informed: bool,
    /// The end of a leader's last noticed standstill.
    stalled_until: Option<Millis>,
    /// When each node was created, if that was after the start.
    born: BTreeMap<Text, Millis>,
    /// Machines that truly are silent, and the last moment at which they may have been heard.
    silent: BTreeMap<Text, Millis>,
    /// Machines that came back, and when.
    back: BTreeMap<Text, Millis>,
    /// Nodes that some leader found silent.
    marked: BTreeSet<Text>,
    debts: BTreeMap<ZoneKey, Debt>,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<String>,
    /// A running hash of every decision, to compare two runs.
    pub(crate) trace: u64,
    verbose: bool,
}

/// Counts of what happened, so that a run in which nothing happened does not count as a success.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) actions: u64,
    pub(crate) silenced: u64,
    pub(crate) evicted: u64,
    pub(crate) lifted: u64,
    pub(crate) partial: u64,
    pub(crate) fully_disrupted: u64,
    pub(crate) takeovers: u64,
    pub(crate) stalls: u64,
}

/// Evictions that the rate has not paid back yet.
#[derive(Debug, Clone, Copy)]
struct Debt {
    owed: u64,
    rate: u64,
    since: Millis,
}

// === what the driver tells ===

impl Oracle {
    pub(crate) fn new(state: &State, verbose: bool) -> Self {
        let slots = state.slot_limit() as usize;
        let tables = || std::array::from_fn(|_| vec![None; slots]);
        Self { heard: tables(), known: tables(), verbose, ..Self::default() }
    }

    pub(crate) fn fell_silent(&mut self, name: &Text, at: Millis) {
        self.silent.insert(name.clone(), at);
        self.back.remove(name);
    }

    pub(crate) fn came_back(&mut self, name: &Text, at: Millis) {
        if self.silent.remove(name).is_some() {
            self.back.insert(name.clone(), at);
        }
    }

    pub(crate) fn is_silent(&self, name: &Text) -> bool {
        self.silent.contains_key(name)
    }

    /// A replica lost its memory.
    pub(crate) fn died(&mut self, replica: ReplicaIndex) {
        self.heard[replica].iter_mut().for_each(|receipt| *receipt = None);
        self.known[replica].iter_mut().for_each(|receipt| *receipt = None);
        self.told[replica] = [false; REPLICAS];
        self.told_at[replica].iter_mut().for_each(Vec::clear);
        self.reborn[replica] = true;
        self.told.iter_mut().for_each(|told| told[replica] = false);
    }

    /// The leader stood still long enough to notice it.
    pub(crate) fn stalled(&mut self, until: Millis) {
        self.stalled_until = self.stalled_until.max(Some(until));
        self.tally.stalls += 1;
    }

    /// Reports of nodes about themselves are no decision of ours.
    fn record(&mut self, at: Millis, command: &Command, outcome: &Outcome) {
        if matches!(command.operation, Operation::Agent(AgentOperation::ReportStatus { .. })) {
            return;
        }
        let words = format!("{at} {:?} {}", command.operation, matches!(outcome, Outcome::Done(_)));
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.trace = words.bytes().fold(self.trace, step);
        if self.verbose {
            println!("{words}");
        }
    }

    fn fail(&mut self, at: Millis, rule: &str, detail: String) {
        if self.violation.is_none() {
            self.violation = Some(format!("{rule} at {} s: {detail}", at as f64 / 1000.0));
        }
    }
}

fn place(table: &mut Receipts, slot: Slot, at: Millis) {
    let index = slot.index as usize;
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    let newer = |(known, when): (Slot, Millis)| (known.generation, when) < (slot.generation, at);
    if table[index].is_none_or(newer) {
        table[index] = Some((slot, at));
    }
}

// === what the world shows ===

impl Witness for Oracle {
    fn heard(&mut self, at: Millis, slot: Slot, through: ReplicaIndex) {
        self.tally.steps += 1;
        place(&mut self.heard[through], slot, at);
        place(&mut self.known[through], slot, at);
        self.told.iter_mut().for_each(|told| told[through] = false);
    }

    fn told(&mut self, at: Millis, listener: ReplicaIndex, teller: ReplicaIndex) {
        let times = &mut self.told_at[listener][teller];
        times.push(at);
        if times.first().is_some_and(|first| first + 4 * SETTLED_FOR < at) {
            times.retain(|time| time + 2 * SETTLED_FOR >= at);
        }
        if std::mem::replace(&mut self.told[listener][teller], true) {
            return;
        }
        for (slot, at) in self.heard[teller].iter().flatten() {
            place(&mut self.known[listener], *slot, *at);
        }
    }

    fn proposed(&mut self, at: Millis, command: &Command, state: &State) {
        if let Operation::Leader(LeaderOperation::MarkSilent { name, .. }) = &command.operation {
            self.check_silence(at, name, state);
        }
        if let Operation::Leader(LeaderOperation::EvictNode { name, .. }) = &command.operation {
            self.check_eviction(at, name, state);
        }
    }

    fn decided(&mut self, at: Millis, command: &Command, outcome: &Outcome) {
        self.tally.steps += 1;
        self.record(at, command, outcome);
        let Outcome::Done(_) = outcome else { return };
        if let Operation::Leader(LeaderOperation::MarkSilent { name, .. }) = &command.operation {
            self.marked.insert(name.clone());
            self.tally.silenced += 1;
        }
        if let Operation::Leader(LeaderOperation::LiftEvictions { names }) = &command.operation {
            self.tally.lifted += names.len() as u64;
        }
    }

    fn changed(&mut self, at: Millis, change: &Change) {
        match (&change.before, &change.after) {
            (None, Some(Object::Node(node))) => drop(self.born.insert(node.meta.name.clone(), at)),
            (Some(Object::Node(_)), Some(Object::Node(node))) if ready(node) != Some(ConditionStatus::Unknown) => {
                self.marked.remove(&node.meta.name);
            }
            (Some(Object::Node(node)), None) => drop(self.marked.remove(&node.meta.name)),
            (Some(_), _) | (None, _) => {}
        }
    }

    fn zones_moved(&mut self, at: Millis, transition: &Transition) {
        for zone in &transition.vanished {
            self.debts.remove(zone);
        }
        for (zone, next) in &transition.next.zones {
            let fresh = Debt { owed: 0, rate: next.rate.0, since: at };
            let debt = self.debts.entry(zone.clone()).or_insert(fresh);
            *debt = Debt { rate: next.rate.0, ..debt.paid_back(at) };
            self.tally.partial += u64::from(next.state == ZoneState::PartialDisruption);
        }
        self.tally.fully_disrupted += u64::from(transition.next.all_disrupted);
    }

    fn leads(&mut self, at: Millis, _: u64, replica: ReplicaIndex) {
        self.leader = replica;
        self.led_since = at;
        let mut others = (0..REPLICAS).filter(|other| *other != replica);
        self.informed = others.all(|other| self.was_told_all_along(replica, other, at));
        self.stalled_until = None;
        self.tally.takeovers += 1;
    }
}

// === the laws ===

impl Oracle {
    fn check_silence(&mut self, at: Millis, name: &Text, state: &State) {
        let Some(node) = state.node(name) else { return };
        self.check_sight(at, name, state.policy());
        let grace = grace(node, state.policy());
        let alive_since = self.back.get(name).copied().unwrap_or_default();
        if !self.is_silent(name) && at > alive_since + grace {
            self.fail(at, "I-05", format!("{name} beats since {alive_since} ms and was found silent"));
        }
        let known = self.known[self.leader].get(node.slot.index as usize).copied().flatten();
        let heard = known.filter(|(slot, _)| *slot == node.slot).map(|(_, heard)| heard);
        let since = self.born.get(name).copied().unwrap_or_default().max(self.led_since);
        match heard {
            Some(heard) if at + QUANTUM <= heard + grace => {
                self.fail(at, "I-02", format!("{name} was heard at {heard} ms and its grace is {grace} ms"));
            }
            None if at <= since + grace => {
                self.fail(at, "I-02", format!("{name} is watched since {since} ms and its grace is {grace} ms"));
            }
            Some(_) | None => {}
        }
    }

    /// I-03: a leader that is new and was not told by all replicas all along, or that stood still, gives every node
    /// time to come back first.
    fn check_sight(&mut self, at: Millis, name: &Text, policy: &Policy) {
        let window = (2 * policy.beat_interval().0).min(120_000);
        let taken_over = (self.tally.takeovers > 0 && !self.informed).then_some(self.led_since);
        for (since, why) in [(taken_over, "took over"), (self.stalled_until, "stood still until")] {
            if let Some(since) = since.filter(|since| at < since + window) {
                self.fail(at, "I-03", format!("{name} was judged by a leader that {why} {since} ms"));
            }
        }
    }

    fn was_told_all_along(&self, listener: ReplicaIndex, teller: ReplicaIndex, now: Millis) -> bool {
        let (times, from) = (&self.told_at[listener][teller], now.saturating_sub(SETTLED_FOR));
        let since_ever = (from == 0 && !self.reborn[listener]).then_some(0);
        let Some(first) = times.iter().rfind(|time| **time <= from).copied().or(since_ever) else { return false };
        let later = times.iter().copied().filter(|time| *time > from).chain([now]);
        later.scan(first, |last, time| Some(time - std::mem::replace(last, time))).all(|gap| gap <= GAP_MAX)
    }

    fn check_eviction(&mut self, at: Millis, name: &Text, state: &State) {
        let Some(node) = state.node(name) else { return };
        self.tally.evicted += 1;
        self.check_sight(at, name, state.policy());
        if ready(node) == Some(ConditionStatus::Unknown) && !self.marked.contains(name) {
            self.fail(at, "I-02", format!("{name} is evicted and was never found silent"));
        }
        let zone = ZoneKey::from_labels(&node.meta.labels);
        let rate = braked_rate(state, &zone);
        if rate == 0 {
            self.fail(at, "I-06", format!("{name} is evicted in zone {zone}, where no node may be"));
        }
        let Some(debt) = self.debts.get(&zone).map(|debt| debt.paid_back(at)) else {
            return self.fail(at, "I-06", format!("{name} is evicted in zone {zone}, which was not assessed"));
        };
        if debt.rate != rate {
            self.fail(at, "I-06", format!("zone {zone} evicts at {} where the model says {rate}", debt.rate));
        }
        if debt.owed > 0 {
            self.fail(at, "I-04", format!("{name} is evicted, and zone {zone} still owes {} billionths", debt.owed));
        }
        self.debts.insert(zone, Debt { owed: debt.owed + ONE, ..debt });
    }

    /// I-23: faults have been off since `quiet_from`, for long enough: the state of every node is known.
    pub(crate) fn check_liveness(&mut self, quiet_from: Millis, state: &State) {
        for node in state.nodes().iter() {
            let (name, found) = (&node.meta.name, ready(node));
            let wrong = match self.is_silent(name) {
                true => found != Some(ConditionStatus::Unknown),
                false => found != Some(ConditionStatus::True),
            };
            if wrong {
                let since = self.silent.get(name);
                let detail =
                    format!("{name} (silent since {since:?} ms) is found {found:?} long after {quiet_from} ms");
                self.fail(quiet_from, "I-23", detail);
            }
        }
    }
}

// === impl Tally, Debt ===

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            actions: self.actions + other.actions,
            silenced: self.silenced + other.silenced,
            evicted: self.evicted + other.evicted,
            lifted: self.lifted + other.lifted,
            partial: self.partial + other.partial,
            fully_disrupted: self.fully_disrupted + other.fully_disrupted,
            takeovers: self.takeovers + other.takeovers,
            stalls: self.stalls + other.stalls,
        }
    }
}

impl Debt {
    fn paid_back(self, at: Millis) -> Self {
        let paid = self.rate.saturating_mul(at - self.since);
        Self { owed: self.owed.saturating_sub(paid), since: at, ..self }
    }
}

/// Z-3 to Z-6 over again, by counting every node: the rate in millionths at which the zone may evict.
fn braked_rate(state: &State, zone: &ZoneKey) -> u64 {
    let policy = state.policy();
    let mut counts: BTreeMap<ZoneKey, (u64, u64)> = BTreeMap::new();
    for node in state.nodes().iter().filter(|node| !node.meta.labels.contains_key(EXCLUDE_DISRUPTION_LABEL)) {
        let (ready, lost) = counts.entry(ZoneKey::from_labels(&node.meta.labels)).or_default();
        *if node.is_ready() { ready } else { lost } += 1;
    }
    let is_full = |(ready, lost): (u64, u64)| ready == 0 && lost > 0;
    if !counts.is_empty() && counts.values().all(|count| is_full(*count)) {
        return 0;
    }
    let (ready, lost) = counts.get(zone).copied().unwrap_or_default();
    let threshold = policy.unhealthy_zone_threshold.0;
    let is_partial = !is_full((ready, lost)) && lost > 2 && lost * 1_000_000 >= threshold * (ready + lost);
    match is_partial {
        false => policy.node_eviction_rate.0,
        true if ready + lost > u64::from(policy.large_cluster_size_threshold) => policy.secondary_node_eviction_rate.0,
        true => 0,
    }
}

fn ready(node: &Node) -> Option<ConditionStatus> {
    node.status.ready().map(|ready| ready.status)
}

fn grace(node: &Node, policy: &Policy) -> Millis {
    match ready(node) {
        Some(_) => policy.node_monitor_grace_period.0,
        None => policy.node_startup_grace_period.0,
    }
}
