//! What a leader does in its rounds, with the product's own cores: sweep, judge, and keep watch over who is there.
//!
//! It holds nothing that State and the pulses could not give back, so a new one is built at every take-over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_actors::node_watch::{Judgement, NodeWatch};
use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::command::Operation;
use muster_lifecycle::node::{ConditionStatus, Node};
use muster_lifecycle::spared::Spared;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_pulse::moment::Moment;
use muster_pulse::sweep::{self, PulseState, Sweep};
use muster_pulse::table::CHUNK_SLOTS;
use muster_pulse::tick::Tick;

use super::ReplicaIndex;
use super::replica::Replica;

pub(super) struct Leader {
    pub(super) replica: ReplicaIndex,
    sweep: Sweep,
    watches: BTreeMap<Text, NodeWatch>,
    /// Whose silence is not settled yet.
    candidates: BTreeSet<Text>,
    /// Who holds each slot.
    holders: Vec<Option<Text>>,
    /// Whose pods it leaves alone for a while.
    pub(super) spared: Spared,
}

impl Leader {
    /// Watches every node; `since` says from when on, should nobody be able to place it. `slots` is how many there
    /// can ever be.
    pub(super) fn new(replica: ReplicaIndex, state: &State, slots: usize, since: impl Fn(&Node) -> Tick) -> Self {
        let mut leader = Self {
            replica,
            sweep: Sweep::over(0..slots.div_ceil(CHUNK_SLOTS)),
            watches: BTreeMap::new(),
            candidates: BTreeSet::new(),
            holders: vec![None; slots],
            spared: Spared::default(),
        };
        state.nodes().iter().for_each(|node| leader.watch(node, since(node)));
        leader
    }

    /// What was committed about a node.
    pub(super) fn learn(&mut self, change: &Change, now: Tick) {
        match (&change.before, &change.after) {
            (Some(Object::Node(before)), None) => self.unwatch(before),
            (None, Some(Object::Node(after))) => self.watch(after, now),
            (Some(Object::Node(_)), Some(Object::Node(after))) => {
                let name = &after.meta.name;
                if self.watches.get(name).is_some_and(NodeWatch::is_candidate) {
                    self.candidates.insert(name.clone());
                }
            }
            (Some(_) | None, _) => {}
        }
    }

    /// One round: who fell silent, who is back, and what is to be proposed about those that are due, by name.
    pub(super) fn round(&mut self, state: &State, replica: &mut Replica, moment: Moment) -> Vec<Operation> {
        let policy = state.policy();
        let period = Duration::from_millis(policy.sweep_period().0);
        let (monitor, startup) = (policy.node_monitor_grace_period.0, policy.node_startup_grace_period.0);
        replica.blindness.tick(moment.tick, period, Duration::from_millis(monitor));
        let mut changes = Vec::new();
        let shortest = Duration::from_millis(monitor.min(startup));
        self.sweep.run(&replica.tables, &replica.blindness, shortest, moment.tick, |change| changes.push(change));
        changes.into_iter().for_each(|change| self.note(change));
        self.judge(state, replica, moment)
    }

    /// The proposals of a round were decided.
    pub(super) fn settled(&mut self, operations: &[Operation]) {
        for name in operations.iter().filter_map(Operation::object_name) {
            if let Some(watch) = self.watches.get_mut(name) {
                watch.settled();
            }
        }
    }

    fn note(&mut self, change: sweep::Change) {
        let holder = self.holders.get(change.slot.index as usize).cloned().flatten();
        let Some((name, watch)) = holder.and_then(|name| Some((name.clone(), self.watches.get_mut(&name)?))) else {
            return;
        };
        match change.hearing {
            PulseState::Silent => {
                watch.fell_silent();
                self.candidates.insert(name);
            }
            PulseState::Heard => {
                watch.was_heard();
                self.candidates.remove(&name);
            }
        }
    }

    fn judge(&mut self, state: &State, replica: &Replica, moment: Moment) -> Vec<Operation> {
        let mut proposals = Vec::new();
        let mut settled = BTreeSet::new();
        for name in &self.candidates {
            let (Some(watch), Some(node)) = (self.watches.get_mut(name), state.node(name)) else { continue };
            if !watch.is_due(moment.stamp.cluster) {
                continue;
            }
            match watch.judge(state, node, &replica.tables, &replica.blindness, moment) {
                Judgement::Propose(operation) => proposals.push(operation),
                Judgement::LookAgain(_) => {}
                Judgement::Nothing => drop(settled.insert(name.clone())),
            }
        }
        self.candidates.retain(|name| !settled.contains(name));
        proposals
    }

    fn watch(&mut self, node: &Node, since: Tick) {
        let known_silent = node.status.ready().is_some_and(|ready| ready.status == ConditionStatus::Unknown);
        let believed = if known_silent { PulseState::Silent } else { PulseState::Heard };
        let (slot, name) = (node.slot, node.meta.name.clone());
        let Some(holder) = self.holders.get_mut(slot.index as usize) else { return };
        if self.sweep.watch(slot, since, believed).is_ok() {
            *holder = Some(name.clone());
            self.watches.insert(name, NodeWatch::new(node, since));
        }
    }

    fn unwatch(&mut self, node: &Node) {
        let _ = self.sweep.unwatch(node.slot);
        self.watches.remove(&node.meta.name);
        self.candidates.remove(&node.meta.name);
        if let Some(holder) = self.holders.get_mut(node.slot.index as usize) {
            *holder = None;
        }
    }
}
