//! The memory of a leader between two rounds: which nodes it watches, and when it looks again.
//!
//! It holds nothing that State and the pulses could not give back, so a new one is built at every take-over. It
//! decides nothing: [`rounds`](super::rounds) calls the product's judging functions.

use std::collections::BTreeMap;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::clerk_task::EvictionsFirst;
use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::node::Node;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::spared::Spared;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::blindness::JudgingLoop;
use muster_pulse::moment::Moment;
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::node_watch::{self, Candidates, Judgement, Next, NodeWatch};
use muster_pulse::sweep::{self, PulseState, Sweep};
use muster_pulse::table::CHUNK_SLOTS;
use muster_pulse::tick::Tick;

use super::Millis;

pub(super) struct Leader {
    leads_since: Tick,
    sweep: Sweep,
    watches: BTreeMap<Text, NodeWatch>,
    candidates: Candidates<Text>,
    /// The node that holds each slot.
    holders: Vec<Option<Text>>,
    policy: Policy,
    /// The nodes that are passed over for a while, by the queue they wait in.
    pub(super) spared: BTreeMap<ZoneKey, Spared>,
    /// The nodes whose pods are left alone for a while.
    pub(super) spared_pods: Spared,
    pub(super) evictions_first: EvictionsFirst,
    pub(super) next_round: Millis,
    pub(super) next_assessment: Millis,
    /// When there may be a token, or a task for a clerk, even if nothing is written.
    pub(super) next_look: Option<Millis>,
    /// Something was written since the last look.
    pub(super) disturbed: bool,
}

impl Leader {
    /// Watches every node, as a leader that leads since that tick. `slots` is how many there can ever be.
    pub(super) fn new(state: &State, slots: usize, leads_since: Tick, now: Millis, moment: Moment) -> Self {
        let mut leader = Self {
            leads_since,
            sweep: Sweep::over(0..slots.div_ceil(CHUNK_SLOTS)),
            watches: BTreeMap::new(),
            candidates: Candidates::default(),
            holders: vec![None; slots],
            policy: state.policy().clone(),
            spared: BTreeMap::new(),
            spared_pods: Spared::default(),
            evictions_first: EvictionsFirst::default(),
            next_round: now,
            next_assessment: now,
            next_look: None,
            disturbed: true,
        };
        state.nodes().iter().for_each(|node| leader.watch(node, moment));
        leader
    }

    pub(super) fn next_instant(&self) -> Millis {
        self.next_look.map_or(self.next_round, |look| look.min(self.next_round))
    }

    /// Takes in a commit.
    pub(super) fn learn(&mut self, change: &Change, moment: Moment) {
        self.disturbed = true;
        match (&change.before, &change.after) {
            (Some(Object::Node(before)), None) => self.unwatch(before),
            (None, Some(Object::Node(after))) => self.watch(after, moment),
            (Some(Object::Node(_)), Some(Object::Node(after))) => self.candidates.changed(&after.meta.name),
            (Some(_) | None, _) => {}
        }
    }

    /// Finds which nodes fell silent and which are back. Returns the operations to propose about those that are due,
    /// by name.
    pub(super) fn judge(&mut self, state: &State, pulses: &PulseMonitor, moment: Moment) -> Vec<LeaderOperation> {
        let (tables, mut blindness) = (pulses.tables(), pulses.blindness());
        let judging = JudgingLoop::of(state.policy());
        blindness.tick(moment.tick, judging);
        let mut changes = Vec::new();
        self.sweep.run(&tables, &blindness, judging.grace, moment.tick, |change| changes.push(change));
        changes.into_iter().for_each(|change| self.hear(change));
        if self.policy != *state.policy() {
            self.policy = state.policy().clone();
            self.candidates.all_changed();
        }
        let mut proposals = Vec::new();
        for name in self.candidates.take_due(moment.stamp.cluster) {
            let watched = self.watches.get(&name).zip(state.node(&name));
            let judgement =
                watched.and_then(|(watch, node)| watch.judge(state, node, watch.trace(&tables), &blindness, moment));
            self.candidates.judged(&name, judgement.as_ref().map_or(Next::Gone, Judgement::next));
            if let Some(Judgement::Propose(operation)) = judgement {
                proposals.push(operation);
            }
        }
        proposals
    }

    /// The proposals of a round were decided.
    pub(super) fn settled(&mut self, operations: &[LeaderOperation]) {
        let names = operations.iter().filter_map(LeaderOperation::node_name);
        names.for_each(|name| self.candidates.settled(&Text::from(name)));
    }

    fn hear(&mut self, change: sweep::PulseChange) {
        if let Some(name) = self.holders.get(change.slot.index as usize).cloned().flatten() {
            self.candidates.hear(name, change.hearing);
        }
    }

    fn watch(&mut self, node: &Node, moment: Moment) {
        let since = node_watch::unheard_since(self.leads_since, node, moment);
        let (slot, name) = (node.slot, node.meta.name.clone());
        let Some(holder) = self.holders.get_mut(slot.index as usize) else { return };
        if self.sweep.watch(slot, since, PulseState::Heard).is_ok() {
            *holder = Some(name.clone());
            self.watches.insert(name, NodeWatch::new(node, since));
        }
    }

    fn unwatch(&mut self, node: &Node) {
        let _ = self.sweep.unwatch(node.slot);
        self.watches.remove(&node.meta.name);
        self.candidates.forget(&node.meta.name);
        if let Some(holder) = self.holders.get_mut(node.slot.index as usize) {
            *holder = None;
        }
    }
}
