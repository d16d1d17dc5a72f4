//! Plays a scenario: moves a world through its timeline, instant by instant.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice;

use muster_lifecycle::change::Change;
use muster_lifecycle::command::{Command, LeaderOperation, Operation, OperatorOperation, Outcome, Precondition};
use muster_lifecycle::disruption::Transition;
use muster_lifecycle::invariant::runs::RunViolation;
use muster_lifecycle::pod::PodKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::taint_eviction;
use muster_lifecycle::text::Text;

use super::occurrence::{self, Ending, Occurrence, What};
use super::scenario::{Action, Entry, Scenario};
use super::world::failure::Fall;
use super::world::{Driver, Millis, ReplicaIndex, Witness, World};

/// How many quiet instants are played without a pause.
const INSTANTS_AT_ONCE: usize = 10_000;

pub struct Play<'a> {
    scenario: &'a Scenario,
    world: World<Record>,
    entries: Peekable<slice::Iter<'a, Entry>>,
}

/// Collects the occurrences that the output shows.
#[derive(Default)]
struct Record {
    happened: Vec<Occurrence>,
    /// The taint that evicts each pod that is about to be evicted.
    causes: BTreeMap<PodKey, String>,
}

// === impl Play ===

impl<'a> Play<'a> {
    /// Fails if a rule refuses what the scenario starts with.
    pub fn new(scenario: &'a Scenario) -> Result<Self, Rejection> {
        Self::driven_by(scenario, Driver::Judge)
    }

    /// As [`Play::new`], with a driver of the world's leader.
    pub fn driven_by(scenario: &'a Scenario, driver: Driver) -> Result<Self, Rejection> {
        let (policy, machines) = (scenario.policy.clone(), scenario.machines.clone());
        let world = World::with_pods(policy, machines, &scenario.pods, driver, Record::default())?;
        Ok(Self { scenario, world, entries: scenario.timeline.iter().peekable() })
    }

    /// Plays on to the next instant at which something happens, and returns the occurrences. Returns none if that
    /// takes long, so that the caller can do other things meanwhile. `None` at the end.
    pub fn play_on(&mut self) -> Option<Vec<Occurrence>> {
        let mut happened = Vec::new();
        for _ in 0..INSTANTS_AT_ONCE {
            let at = self.next_instant()?;
            self.instant(at);
            happened = self.take_happened();
            if !happened.is_empty() {
                break;
            }
        }
        Some(happened)
    }

    /// I-12, I-14: at no time did two pods of one name run. The error says which did.
    pub fn check_runs(&self) -> Result<(), RunViolation> {
        self.world.runs().check()
    }

    /// The state of the world now.
    pub fn ending(&self) -> Ending {
        Ending::of(self.world.state())
    }

    /// The next instant at which something happens; `None` if that is after the end.
    pub fn next_instant(&mut self) -> Option<Millis> {
        let entry = self.entries.peek().map_or(Millis::MAX, |entry| entry.at);
        Some(self.world.next_instant().min(entry)).filter(|at| *at <= self.scenario.until)
    }

    /// The occurrences since the last call.
    pub fn take_happened(&mut self) -> Vec<Occurrence> {
        std::mem::take(&mut self.world.witness_mut().happened)
    }

    pub fn world(&self) -> &World<impl Witness> {
        &self.world
    }

    pub fn world_mut(&mut self) -> &mut World<impl Witness> {
        &mut self.world
    }

    /// Everything that happens at this instant, except the driver's part if the driver is elsewhere.
    pub fn instant(&mut self, at: Millis) {
        self.world.move_to(at);
        while let Some(entry) = self.entries.next_if(|entry| entry.at <= at) {
            self.act(&entry.action);
        }
        self.world.finish_instant();
    }

    fn act(&mut self, action: &Action) {
        let none = Precondition::default();
        match action {
            Action::Silence(nodes) => self.each(nodes, |world, place, _| world.silence(place)),
            Action::Resume(nodes) => self.each(nodes, |world, place, _| world.resume(place)),
            Action::Post(nodes, conditions) => self.each(nodes, |world, place, _| world.post(place, conditions)),
            Action::Renew(nodes) => self.each(nodes, |world, place, _| world.renew(place)),
            Action::Create(nodes) => self.each(nodes, |world, place, _| world.register(place)),
            Action::Failover { downtime } => drop(self.world.fail_over(*downtime, Fall::Dies)),
            Action::Taint(nodes, add) => self.write(nodes, |name| OperatorOperation::TaintNode {
                name,
                add: add.clone(),
                remove: Vec::new(),
                overwrite: true,
                precondition: none,
            }),
            Action::Untaint(nodes, remove) => self.write(nodes, |name| OperatorOperation::TaintNode {
                name,
                add: Vec::new(),
                remove: remove.clone(),
                overwrite: true,
                precondition: none,
            }),
            Action::Cordon(nodes) => {
                self.write(nodes, |name| OperatorOperation::CordonNode {
                    name,
                    unschedulable: true,
                    precondition: none,
                });
            }
            Action::Uncordon(nodes) => {
                self.write(nodes, |name| OperatorOperation::CordonNode {
                    name,
                    unschedulable: false,
                    precondition: none,
                });
            }
            Action::Label(nodes, changes) => self.write(nodes, |name| OperatorOperation::LabelNode {
                name,
                changes: changes.clone(),
                overwrite: true,
                precondition: none,
            }),
            Action::Delete(nodes) => {
                self.write(nodes, |name| OperatorOperation::DeleteNode { name, precondition: none })
            }
        }
    }

    fn each(&mut self, nodes: &[Text], act: impl Fn(&mut World<Record>, usize, &Text)) {
        for node in nodes {
            if let Some(place) = self.world.machine(node) {
                act(&mut self.world, place, node);
            }
        }
    }

    fn write(&mut self, nodes: &[Text], operation: impl Fn(Text) -> OperatorOperation) {
        nodes.iter().for_each(|node| self.world.operate(operation(node.clone())));
    }
}

// === impl Record ===

impl Witness for Record {
    fn proposed(&mut self, _: Millis, command: &Command, state: &State) {
        let Operation::Leader(LeaderOperation::EvictPod { key, .. }) = &command.operation else { return };
        let pod = state.pods().get(key);
        let node = pod.and_then(|pod| state.node_of(pod));
        let cause = pod.zip(node).and_then(|(pod, node)| taint_eviction::cause(pod, &node.spec.taints));
        self.causes.extend(cause.map(|(taint, _)| (key.clone(), taint.to_string())));
    }

    fn changed(&mut self, at: Millis, change: &Change) {
        let happened = occurrence::of_change(change, &mut self.causes);
        self.happened.extend(happened.into_iter().map(|what| Occurrence { at, what }));
    }

    fn zones_moved(&mut self, at: Millis, transition: &Transition) {
        let states = transition.states.iter().map(|change| What::Zone {
            zone: change.zone.clone(),
            from: change.from,
            to: change.to,
        });
        let rates = transition.rates.iter().map(|change| What::Rate { zone: change.zone.clone(), rate: change.to });
        self.happened.extend(states.chain(rates).map(|what| Occurrence { at, what }));
    }

    fn leads(&mut self, at: Millis, term: u64, _: ReplicaIndex) {
        self.happened.push(Occurrence { at, what: What::Leader { term } });
    }

    fn decided(&mut self, at: Millis, command: &Command, outcome: &Outcome) {
        if let Outcome::Rejected(rejection) = outcome {
            let operation = &command.operation;
            let what = format!("{} {}", operation.label(), operation.node_name().unwrap_or_default());
            self.happened.push(Occurrence { at, what: What::Refused { what, why: rejection.to_string() } });
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::invariant;

    use super::*;

    #[test]
    fn pod_scenarios_keep_every_invariant_and_have_no_rejection() {
        let scenarios = [
            include_str!("../../../tests/scenarios/pods-failover.yaml"),
            include_str!("../../../tests/scenarios/pods-replicas.yaml"),
            include_str!("../../../tests/scenarios/pods-stateful.yaml"),
            include_str!("../../../tests/scenarios/pods-waiting.yaml"),
        ];
        for text in scenarios {
            let scenario = Scenario::parse(text).unwrap();
            let mut play = Play::new(&scenario).unwrap();
            while let Some(happened) = play.play_on() {
                let refused = happened.iter().find(|one| matches!(one.what, What::Refused { .. }));
                assert_eq!(refused, None);
                invariant::check_all(play.world.state()).unwrap();
            }
        }
    }
}
