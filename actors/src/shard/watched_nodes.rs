//! The nodes that one shard watches: which nodes, which of them have an actor, and when each is judged.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::node::{Node, Slot};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::moment::Moment;
use muster_pulse::node_watch::{Candidates, Next, NodeWatch};
use muster_pulse::sweep::PulseState;
use ractor::{ActorId, ActorRef};
use tokio::time::Instant;

use super::crashes::Crashes;
use crate::cluster::roster::{self, ChunkNumber, ShardRoster};
use crate::cluster::update::{FullRoster, JudgingRound, Touched};
use crate::node::{self, Finding, ShardContext};
use crate::ports::ActorKind;
use crate::supervision::restart::RestartDecision;
use crate::tree::context::TreeContext;
use crate::zone::transition::Transition;

/// The reason of a quarantine if the panic has no message.
const NO_MESSAGE: &str = "it panicked without a message";

/// Everything here is by index of the slot; a shard has one chunk of slots.
pub(super) struct WatchedNodes {
    context: Arc<ShardContext>,
    key: ZoneKey,
    chunk: ChunkNumber,
    nodes: BTreeMap<u32, WatchedNode>,
    /// The nodes that were not heard for a while, and when each is to be judged. Only the shard keeps it, wherever
    /// the node is judged.
    candidates: Candidates<u32>,
    without_actor: BTreeSet<u32>,
    crashes: Crashes,
    policy: Option<Policy>,
}

struct WatchedNode {
    name: Text,
    watch: NodeWatch,
    judge: Judge,
}

/// The place in which a node is judged.
enum Judge {
    /// The node has no actor yet: the shard judges it itself.
    Shard,
    Actor(ActorRef<node::Msg>),
    /// Not judged: about to be tried again, or quarantined.
    Suspended,
}

// === watched nodes ===

impl WatchedNodes {
    pub(super) fn new(context: Arc<ShardContext>, key: ZoneKey, chunk: ChunkNumber) -> Self {
        Self {
            context,
            key,
            chunk,
            nodes: BTreeMap::new(),
            candidates: Candidates::default(),
            without_actor: BTreeSet::new(),
            crashes: Crashes::default(),
            policy: None,
        }
    }

    pub(super) fn tree(&self) -> &TreeContext {
        &self.context.tree
    }

    /// Watches these nodes and no others.
    pub(super) fn watch_only(&mut self, full: FullRoster<ShardRoster>) {
        let source = Arc::clone(&self.tree().ports.source);
        let roster = full.roster.unwrap_or_else(|| roster::of_shard(&source.state(), &self.key, self.chunk));
        let listed: BTreeSet<Slot> = roster.iter().map(|node| node.slot).collect();
        let absent = self.nodes.values().map(|node| node.watch.slot()).filter(|slot| !listed.contains(slot));
        absent.collect::<Vec<Slot>>().into_iter().for_each(|slot| self.forget(slot.index));
        let moment = source.moment();
        roster.iter().for_each(|node| self.watch(node, full.unsure, moment));
    }

    pub(super) fn watch_too(&mut self, roster: &ShardRoster) {
        if !roster.is_empty() {
            let moment = self.tree().ports.source.moment();
            roster.iter().for_each(|node| self.watch(node, false, moment));
        }
    }

    pub(super) fn touched(&mut self, touched: Touched) {
        if touched.is_empty() {
            return;
        }
        let source = Arc::clone(&self.tree().ports.source);
        let (state, moment) = (source.state(), source.moment());
        for (slot, name) in touched {
            match state.node(&name).filter(|node| node.slot == slot && roster::zone_of(node) == self.key) {
                Some(node) => self.watch(node, false, moment),
                None if self.holds(slot) => self.forget(slot.index),
                None => {}
            }
        }
    }

    fn watch(&mut self, node: &Arc<Node>, unsure: bool, moment: Moment) {
        let index = node.slot.index;
        if self.nodes.get(&index).is_some_and(|known| known.watch.incarnation() == node.incarnation) {
            return self.candidates.changed(&index);
        }
        self.forget(index);
        let watch = NodeWatch::new(node, self.tree().unheard_since(node, moment));
        let judge = match self.tree().quarantine.get(&node.meta.name, node.incarnation) {
            None => {
                self.without_actor.insert(index);
                if unsure {
                    self.candidates.doubt(index);
                }
                Judge::Shard
            }
            Some(quarantined) => {
                if !quarantined.noted {
                    self.crashes.owe_note(index);
                }
                Judge::Suspended
            }
        };
        self.nodes.insert(index, WatchedNode { name: node.meta.name.clone(), watch, judge });
    }

    fn forget(&mut self, index: u32) {
        self.candidates.forget(&index);
        self.without_actor.remove(&index);
        self.crashes.forget(index);
        if let Some(WatchedNode { judge: Judge::Actor(actor), .. }) = self.nodes.remove(&index) {
            actor.stop(None);
        }
    }

    fn holds(&self, slot: Slot) -> bool {
        self.nodes.get(&slot.index).is_some_and(|node| node.watch.slot() == slot)
    }

    fn is_judged(&self, slot: Slot) -> bool {
        let node = self.nodes.get(&slot.index).filter(|node| node.watch.slot() == slot);
        node.is_some_and(|node| !matches!(node.judge, Judge::Suspended))
    }
}

// === what is heard of them ===

impl WatchedNodes {
    pub(super) fn hear(&mut self, slot: Slot, hearing: PulseState) {
        if self.is_judged(slot) {
            self.candidates.hear(slot.index, hearing);
        }
    }

    /// Takes in the finding of a node's actor.
    pub(super) fn judged(&mut self, slot: Slot, next: Next) {
        if self.is_judged(slot) {
            self.candidates.judged(&slot.index, next);
        }
    }

    pub(super) fn settled(&mut self, slot: Slot, decided: bool) {
        let Some(node) = self.nodes.get(&slot.index).filter(|node| node.watch.slot() == slot) else { return };
        if !self.crashes.note_settled(slot.index, decided) {
            self.candidates.settled(&slot.index);
        } else if decided {
            self.context.tree.quarantine.noted(&node.name, node.watch.incarnation());
        }
    }
}

// === judging ===

impl WatchedNodes {
    pub(super) fn judge(&mut self, round: &Arc<JudgingRound>) {
        if self.policy.as_ref() != Some(round.state.policy()) {
            self.policy = Some(round.state.policy().clone());
            self.candidates.all_changed();
        }
        for index in self.candidates.take_due(round.moment.stamp.cluster) {
            self.judge_one(index, round);
        }
    }

    fn judge_one(&mut self, index: u32, round: &Arc<JudgingRound>) {
        let Some(node) = self.nodes.get(&index) else { return };
        match &node.judge {
            Judge::Shard => {
                // A panic on one node must not stop the shard.
                let judged = catch_unwind(AssertUnwindSafe(|| {
                    self.context.tree.probe(ActorKind::Node, &node.name);
                    node::judge(&node.watch, &node.name, round, &self.context.tree)
                }));
                match judged {
                    Ok(finding) => self.act_on(index, finding),
                    Err(panic) => self.crashed(index, panic_message(panic.as_ref())),
                }
            }
            // A dead actor is reported by supervision.
            Judge::Actor(actor) => drop(actor.cast(node::Msg::Judge(Arc::clone(round)))),
            Judge::Suspended => {}
        }
    }

    fn act_on(&mut self, index: u32, finding: Finding) {
        self.candidates.judged(&index, finding.next);
        if let Some(transition) = finding.transition {
            self.context.propose(transition);
        }
    }
}

// === their actors ===

impl WatchedNodes {
    pub(super) fn lacks_actors(&self) -> bool {
        !self.without_actor.is_empty()
    }

    /// Some of the nodes that the shard judges itself, to give each an actor.
    pub(super) fn next_without_actor(&mut self, count: usize) -> Vec<(u32, node::Args)> {
        let next: Vec<u32> = std::iter::from_fn(|| self.without_actor.pop_first()).take(count).collect();
        next.into_iter().filter_map(|index| Some((index, self.args(index)?))).collect()
    }

    fn args(&self, index: u32) -> Option<node::Args> {
        let WatchedNode { name, watch, .. } = self.nodes.get(&index)?;
        Some(node::Args { name: name.clone(), watch: *watch, shard: Arc::clone(&self.context) })
    }

    pub(super) fn got_actor(&mut self, index: u32, actor: ActorRef<node::Msg>) {
        match self.nodes.get_mut(&index) {
            Some(node) => node.judge = Judge::Actor(actor),
            None => actor.stop(None),
        }
    }

    pub(super) fn actor_died(&mut self, id: ActorId, reason: &str) {
        let index = self.nodes.iter().find(|(_, node)| node.has_actor(id)).map(|(index, _)| *index);
        if let Some(index) = index {
            self.crashed(index, reason);
        }
    }

    pub(super) fn crashed(&mut self, index: u32, reason: &str) {
        let Some(node) = self.nodes.get_mut(&index) else { return };
        node.judge = Judge::Suspended;
        self.candidates.forget(&index);
        self.without_actor.remove(&index);
        match self.crashes.crashed(index, Instant::now()) {
            RestartDecision::RestartAfter(pause) => {
                tracing::warn!(node = %node.name, reason, ?pause, "watching a node panicked, it is tried again");
            }
            RestartDecision::OverBudget => {
                tracing::error!(node = %node.name, reason, "watching a node keeps panicking, it is quarantined");
                let since = self.context.tree.ports.source.moment().stamp;
                self.context.tree.quarantine.add(&node.name, node.watch.incarnation(), reason, since);
                self.crashes.owe_note(index);
            }
        }
    }

    /// The nodes to try again. What happened to them meanwhile is not known.
    pub(super) fn take_due_restarts(&mut self, state: &state::State) -> Vec<(u32, node::Args)> {
        let due = self.crashes.take_due(Instant::now());
        due.into_iter().filter_map(|index| Some((index, self.renewed(index, state)?))).collect()
    }

    fn renewed(&mut self, index: u32, state: &state::State) -> Option<node::Args> {
        let known = self.nodes.get(&index)?;
        let node = state.node(&known.name).filter(|node| node.incarnation == known.watch.incarnation())?;
        let since = self.tree().unheard_since(node, self.tree().ports.source.moment());
        self.nodes.get_mut(&index)?.watch = NodeWatch::new(node, since);
        self.candidates.doubt(index);
        self.args(index)
    }

    pub(super) fn note_quarantined(&mut self) {
        for index in self.crashes.send_notes() {
            let Some(node) = self.nodes.get(&index) else { continue };
            let quarantined = self.context.tree.quarantine.get(&node.name, node.watch.incarnation());
            let Some(quarantined) = quarantined else { continue };
            let operation = LeaderOperation::NoteQuarantine {
                name: quarantined.name,
                incarnation: quarantined.incarnation,
                reason: quarantined.reason,
            };
            self.context.propose(Transition { slot: node.watch.slot(), operation, trace: None });
        }
    }
}

// === impl WatchedNode ===

impl WatchedNode {
    fn has_actor(&self, id: ActorId) -> bool {
        matches!(&self.judge, Judge::Actor(actor) if actor.get_id() == id)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or(NO_MESSAGE)
}
