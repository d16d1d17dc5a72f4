//! The nodes that one shard watches, wherever the watch of each is kept.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use muster_lifecycle::command::Operation;
use muster_lifecycle::node::{Incarnation, Node, Slot};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::sweep::PulseState;
use ractor::{ActorId, ActorRef};
use tokio::time::Instant;

use super::illness::Illnesses;
use crate::ground::Ground;
use crate::news::{Look, RollCall, Touched};
use crate::node::{self, Finding, Home};
use crate::node_watch::NodeWatch;
use crate::restart::Sentence;
use crate::roster::{self, ChunkNumber, ShardRoster};
use crate::surroundings::ActorKind;
use crate::transition::Transition;
use muster_pulse::moment::Moment;

/// What a node is called in quarantine if its panic says nothing.
const NO_WORDS: &str = "it panicked without a message";

/// Everything here is by index of the slot, of which a shard has a chunk.
pub(super) struct Wards {
    home: Arc<Home>,
    key: ZoneKey,
    chunk: ChunkNumber,
    wards: BTreeMap<u32, Ward>,
    /// The candidates, and from when on each is to be judged.
    due: BTreeMap<u32, ClusterTime>,
    /// Those without an actor of their own.
    unmanned: BTreeSet<u32>,
    illnesses: Illnesses,
    policy: Option<Policy>,
}

struct Ward {
    name: Text,
    slot: Slot,
    incarnation: Incarnation,
    keeper: Keeper,
}

enum Keeper {
    /// No actor yet: the shard judges it itself.
    Shard(NodeWatch),
    Actor(ActorRef<node::Msg>),
    /// Not judged: about to be tried again, or quarantined.
    Nobody,
}

// === who is watched ===

impl Wards {
    pub(super) fn new(home: Arc<Home>, key: ZoneKey, chunk: ChunkNumber) -> Self {
        Self {
            home,
            key,
            chunk,
            wards: BTreeMap::new(),
            due: BTreeMap::new(),
            unmanned: BTreeSet::new(),
            illnesses: Illnesses::default(),
            policy: None,
        }
    }

    pub(super) fn ground(&self) -> &Ground {
        &self.home.ground
    }

    pub(super) fn call(&mut self, call: RollCall<ShardRoster>) {
        let ledger = Arc::clone(&self.ground().surroundings.ledger);
        let roster = call.roster.unwrap_or_else(|| roster::of_shard(&ledger.state(), &self.key, self.chunk));
        let called: BTreeSet<Slot> = roster.iter().map(|node| node.slot).collect();
        let absent = self.wards.values().map(|ward| ward.slot).filter(|slot| !called.contains(slot));
        absent.collect::<Vec<Slot>>().into_iter().for_each(|slot| self.forget(slot.index));
        let moment = ledger.moment();
        roster.iter().for_each(|node| self.watch(node, call.unsure, moment));
    }

    pub(super) fn join(&mut self, roster: &ShardRoster) {
        if !roster.is_empty() {
            let moment = self.ground().surroundings.ledger.moment();
            roster.iter().for_each(|node| self.watch(node, false, moment));
        }
    }

    pub(super) fn touched(&mut self, touched: Touched) {
        if touched.is_empty() {
            return;
        }
        let ledger = Arc::clone(&self.ground().surroundings.ledger);
        let (state, moment) = (ledger.state(), ledger.moment());
        for (slot, name) in touched {
            match state.node(&name).filter(|node| node.slot == slot && roster::zone_of(node) == self.key) {
                Some(node) => self.watch(node, false, moment),
                None if self.wards.get(&slot.index).is_some_and(|ward| ward.slot == slot) => self.forget(slot.index),
                None => {}
            }
        }
    }

    fn watch(&mut self, node: &Arc<Node>, unsure: bool, moment: Moment) {
        let index = node.slot.index;
        if self.wards.get(&index).is_some_and(|ward| ward.incarnation == node.incarnation) {
            return self.reconsider(index);
        }
        self.forget(index);
        let since = self.ground().unheard_since(node, moment);
        let watch = if unsure { NodeWatch::unsure(node, since) } else { NodeWatch::new(node, since) };
        let keeper = match self.ground().quarantine.get(&node.meta.name, node.incarnation) {
            None => {
                self.unmanned.insert(index);
                self.set_due(index, watch.due_at());
                Keeper::Shard(watch)
            }
            Some(confined) => {
                if !confined.noted {
                    self.illnesses.owe_note(index);
                }
                Keeper::Nobody
            }
        };
        let name = node.meta.name.clone();
        self.wards.insert(index, Ward { name, slot: node.slot, incarnation: node.incarnation, keeper });
    }

    fn forget(&mut self, index: u32) {
        self.due.remove(&index);
        self.unmanned.remove(&index);
        self.illnesses.forget(index);
        if let Some(Ward { keeper: Keeper::Actor(actor), .. }) = self.wards.remove(&index) {
            actor.stop(None);
        }
    }

    fn set_due(&mut self, index: u32, due: Option<ClusterTime>) {
        match due {
            Some(due) => self.due.insert(index, due),
            None => self.due.remove(&index),
        };
    }
}

// === what is heard of them ===

impl Wards {
    pub(super) fn hear(&mut self, slot: Slot, hearing: PulseState) {
        let Some(ward) = self.wards.get_mut(&slot.index).filter(|ward| ward.slot == slot) else { return };
        match &mut ward.keeper {
            Keeper::Shard(watch) => node::hear(watch, hearing),
            Keeper::Actor(actor) => drop(actor.cast(node::Msg::Pulse(hearing))),
            Keeper::Nobody => return,
        }
        match hearing {
            PulseState::Heard => drop(self.due.remove(&slot.index)),
            PulseState::Silent => drop(self.due.entry(slot.index).or_insert(ClusterTime(0))),
        }
    }

    /// A node's actor says when to look at it again.
    pub(super) fn look_again(&mut self, slot: Slot, due: ClusterTime) {
        if self.wards.get(&slot.index).is_some_and(|ward| ward.slot == slot && ward.has_actor()) {
            self.due.insert(slot.index, due);
        }
    }

    pub(super) fn settled(&mut self, slot: Slot, decided: bool) {
        let Some(ward) = self.wards.get_mut(&slot.index).filter(|ward| ward.slot == slot) else { return };
        if self.illnesses.note_settled(slot.index, decided) {
            if decided {
                self.home.ground.quarantine.noted(&ward.name, ward.incarnation);
            }
            return;
        }
        match &mut ward.keeper {
            Keeper::Shard(watch) => watch.settled(),
            Keeper::Actor(actor) => drop(actor.cast(node::Msg::Settled)),
            Keeper::Nobody => return,
        }
        self.due.insert(slot.index, ClusterTime(0));
    }

    /// Only of a candidate there is anything to reconsider.
    fn reconsider(&mut self, index: u32) {
        let (Some(due), Some(ward)) = (self.due.get_mut(&index), self.wards.get_mut(&index)) else { return };
        *due = ClusterTime(0);
        match &mut ward.keeper {
            Keeper::Shard(watch) => watch.reconsider(),
            Keeper::Actor(actor) => drop(actor.cast(node::Msg::Changed)),
            Keeper::Nobody => {}
        }
    }
}

// === judging ===

impl Wards {
    pub(super) fn judge(&mut self, look: &Arc<Look>) {
        if self.policy.as_ref() != Some(look.state.policy()) {
            self.policy = Some(look.state.policy().clone());
            self.due.keys().copied().collect::<Vec<u32>>().into_iter().for_each(|index| self.reconsider(index));
        }
        let now = look.moment.stamp.cluster;
        let due: Vec<u32> = self.due.iter().filter(|(_, at)| **at <= now).map(|(index, _)| *index).collect();
        for index in due {
            self.due.remove(&index);
            self.look_at(index, look);
        }
    }

    fn look_at(&mut self, index: u32, look: &Arc<Look>) {
        let Some(ward) = self.wards.get_mut(&index) else { return };
        match &mut ward.keeper {
            Keeper::Shard(watch) => {
                // One node must not take its whole shard along.
                let examined = catch_unwind(AssertUnwindSafe(|| {
                    self.home.ground.probe(ActorKind::Node, &ward.name);
                    node::examine(watch, &ward.name, look, &self.home.ground)
                }));
                match examined {
                    Ok(finding) => self.act_on(index, finding),
                    Err(panic) => self.fell_ill(index, panic_message(panic.as_ref())),
                }
            }
            // If it is dead, that is reported apart.
            Keeper::Actor(actor) => drop(actor.cast(node::Msg::Judge(Arc::clone(look)))),
            Keeper::Nobody => {}
        }
    }

    fn act_on(&mut self, index: u32, finding: Finding) {
        self.set_due(index, finding.due);
        if let Some(transition) = finding.transition {
            self.home.propose(transition);
        }
    }
}

// === their actors ===

impl Wards {
    pub(super) fn has_unmanned(&self) -> bool {
        !self.unmanned.is_empty()
    }

    /// Takes some of the watches that the shard keeps itself, to give each to an actor.
    pub(super) fn unmanned(&mut self, count: usize) -> Vec<(u32, node::Args)> {
        let next: Vec<u32> = self.unmanned.iter().take(count).copied().collect();
        next.into_iter().filter_map(|index| Some((index, self.hand_over(index)?))).collect()
    }

    fn hand_over(&mut self, index: u32) -> Option<node::Args> {
        self.unmanned.remove(&index);
        let ward = self.wards.get_mut(&index)?;
        let Keeper::Shard(watch) = &ward.keeper else { return None };
        let args = node::Args { name: ward.name.clone(), watch: *watch, home: Arc::clone(&self.home) };
        ward.keeper = Keeper::Nobody;
        Some(args)
    }

    pub(super) fn manned(&mut self, index: u32, actor: ActorRef<node::Msg>) {
        match self.wards.get_mut(&index) {
            Some(ward) => ward.keeper = Keeper::Actor(actor),
            None => actor.stop(None),
        }
    }

    pub(super) fn died(&mut self, id: ActorId, reason: &str) {
        let index = self.wards.iter().find(|(_, ward)| ward.is_kept_by(id)).map(|(index, _)| *index);
        if let Some(index) = index {
            self.fell_ill(index, reason);
        }
    }

    pub(super) fn fell_ill(&mut self, index: u32, reason: &str) {
        let Some(ward) = self.wards.get_mut(&index) else { return };
        ward.keeper = Keeper::Nobody;
        self.due.remove(&index);
        self.unmanned.remove(&index);
        match self.illnesses.fell_ill(index, Instant::now()) {
            Sentence::RestartAfter(pause) => {
                tracing::warn!(node = %ward.name, reason, ?pause, "watching a node panicked, it is tried again");
            }
            Sentence::OverBudget => {
                tracing::error!(node = %ward.name, reason, "watching a node keeps panicking, it is quarantined");
                let since = self.home.ground.surroundings.ledger.moment().stamp;
                self.home.ground.quarantine.confine(&ward.name, ward.incarnation, reason, since);
                self.illnesses.owe_note(index);
            }
        }
    }

    /// Those that are to be tried again, unsure of what happened meanwhile.
    pub(super) fn recovered(&mut self, state: &state::State) -> Vec<(u32, node::Args)> {
        let recovered = self.illnesses.recovered(Instant::now());
        recovered.into_iter().filter_map(|index| Some((index, self.renewed(index, state)?))).collect()
    }

    fn renewed(&mut self, index: u32, state: &state::State) -> Option<node::Args> {
        let ward = self.wards.get(&index)?;
        let node = state.node(&ward.name).filter(|node| node.incarnation == ward.incarnation)?;
        let since = self.ground().unheard_since(node, self.ground().surroundings.ledger.moment());
        let args =
            node::Args { name: ward.name.clone(), watch: NodeWatch::unsure(node, since), home: Arc::clone(&self.home) };
        self.set_due(index, args.watch.due_at());
        Some(args)
    }

    pub(super) fn note_quarantined(&mut self) {
        for index in self.illnesses.send_notes() {
            let Some(ward) = self.wards.get(&index) else { continue };
            let Some(confined) = self.home.ground.quarantine.get(&ward.name, ward.incarnation) else { continue };
            let operation = Operation::NoteQuarantine {
                name: confined.name,
                incarnation: confined.incarnation,
                reason: confined.reason,
            };
            let transition = Transition { slot: ward.slot, operation, trace: None };
            self.home.propose(transition);
        }
    }
}

// === impl Ward ===

impl Ward {
    fn has_actor(&self) -> bool {
        matches!(self.keeper, Keeper::Actor(_))
    }

    fn is_kept_by(&self, id: ActorId) -> bool {
        matches!(&self.keeper, Keeper::Actor(actor) if actor.get_id() == id)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or(NO_WORDS)
}
