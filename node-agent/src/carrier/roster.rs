//! The nodes of a carrier and what is owed for each: a binding, a registration, a beat, a status, a report on pods. No
//! waiting, no connection; the time is an argument.
//!
//! What is owed is a set of handles per kind, so it is bounded by the number of nodes whatever happens, and a beat that
//! could not be said in time is not said twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_proto::v1;
use muster_proto::v1::carrier_reply::Message as Down;
use tokio::time::Instant;

use crate::attachment::Dice;
use crate::failure::{Failure, quoted};
use crate::introduction::Introduction;
use crate::machine::{Fingerprint, Machine};
use crate::pods::{Inbox, Workload};
use crate::status::Posting;
use crate::terms::Terms;
use crate::vigil::Vigil;

use super::{CarriedNode, CarrierState};

mod hearing;
mod pods;
mod speaking;
#[cfg(test)]
mod tests;

pub(super) struct Roster {
    instance: u64,
    version: String,
    dice: Dice,
    nodes: Vec<Node>,
    owed: Owed,
    /// When pods of which node have to be killed next; each node at most once.
    alarms: BTreeSet<(Instant, u32)>,
    replica: Option<u64>,
    fleet: Option<Arc<str>>,
    terms: Terms,
    /// Numbers statuses, reports and questions.
    sequence: u64,
    started: Instant,
    slice: u32,
    next_slice: Instant,
    vigil: Vigil,
    bound: usize,
    registering: usize,
    refused: usize,
    removals: u64,
}

struct Node {
    name: String,
    machine: Arc<dyn Machine>,
    incarnation: u64,
    standing: Standing,
    introduction: Introduction,
    status: Posting,
    /// The newest demand for a status: older ones are ignored.
    status_revision: u64,
    pods: Workload,
    /// Its place among the alarms.
    alarm: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Standing {
    Unbound {
        since: Instant,
    },
    /// To be registered as soon as nothing runs that belongs to its former life.
    Clearing,
    Registering {
        since: Instant,
        status: Fingerprint,
    },
    Bound,
    Refused {
        since: Instant,
    },
}

#[derive(Default)]
struct Owed {
    beats: BTreeSet<u32>,
    bindings: BTreeSet<u32>,
    registrations: BTreeSet<u32>,
    pods: BTreeSet<u32>,
    statuses: BTreeSet<u32>,
    introductions: BTreeSet<u32>,
}

/// What a reply means for the connection.
pub(super) enum Reaction {
    Stay,
    /// Stay, but tell the owner.
    Complain(Failure),
    Move,
}

// === impl Roster ===

impl Roster {
    pub(super) fn new(
        instance: u64,
        version: String,
        nodes: Vec<CarriedNode>,
        inbox: &Arc<Inbox>,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let pods = |handle, node: &CarriedNode| Workload::new(node.machine.runtime(), inbox.news(handle), now);
        let nodes = (0..).zip(nodes).map(|(handle, node)| Node::new(pods(handle, &node), node, now));
        Self {
            instance,
            version,
            dice,
            nodes: nodes.collect(),
            owed: Owed::default(),
            alarms: BTreeSet::new(),
            replica: None,
            fleet: None,
            terms: Terms::default(),
            sequence: 0,
            started: now,
            slice: 0,
            next_slice: now,
            vigil: Vigil::new(now),
            bound: 0,
            registering: 0,
            refused: 0,
            removals: 0,
        }
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn state(&self) -> CarrierState {
        CarrierState {
            attached_to: self.replica,
            fleet: self.fleet.clone(),
            bound: self.bound,
            registering: self.registering,
            refused: self.refused,
            removals: self.removals,
            terms: self.terms,
            last_error: None,
        }
    }

    /// A new stream, if its first message is a welcome from the right fleet: every node has to be bound on it.
    pub(super) fn attached(&mut self, first: v1::CarrierReply, door: &str, now: Instant) -> Result<(), Failure> {
        let Some(Down::Welcome(welcome)) = first.message else {
            return Err(Failure::Unexpected { door: door.to_owned(), heard: "something else" });
        };
        if let Some(ours) = self.fleet.as_ref().filter(|ours| ***ours != *welcome.fleet) {
            let (ours, theirs) = (ours.to_string(), quoted(&welcome.fleet));
            return Err(Failure::ForeignFleet { door: door.to_owned(), ours, theirs });
        }
        self.detached(now);
        self.vigil.heard(now);
        self.fleet = Some(welcome.fleet.into());
        self.replica = Some(welcome.replica);
        self.adopt(welcome.terms, now);
        self.next_slice = now;
        for handle in self.handles() {
            self.stand(handle, Standing::Unbound { since: now });
            self.owed.bindings.insert(handle);
        }
        Ok(())
    }

    pub(super) fn detached(&mut self, now: Instant) {
        self.replica = None;
        self.owed = Owed::default();
        for handle in self.handles() {
            self.stand(handle, Standing::Unbound { since: now });
            self.node_mut(handle).status.detached();
        }
    }

    /// When the replica has been silent for too long, unless it is in doubt already.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        self.replica.and_then(|_| self.vigil.doubt_at(&self.terms, self.next_slice))
    }

    /// Begins to doubt the replica if it is time to.
    pub(super) fn doubt(&mut self, door: &str, now: Instant) -> Option<Failure> {
        self.replica.and_then(|_| self.vigil.doubt(&self.terms, self.next_slice, door, now))
    }

    /// Another replica should be looked for, although this one is kept until then.
    pub(super) fn is_doubtful(&self) -> bool {
        self.replica.is_some() && self.vigil.is_doubtful()
    }

    pub(super) fn status_changed(&mut self, handles: BTreeSet<u32>, now: Instant) {
        for handle in handles {
            self.node_mut(handle).status.doubt();
            self.owe_status_if_due(handle, now);
        }
    }

    fn handles(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    fn node(&self, handle: u32) -> &Node {
        &self.nodes[handle as usize]
    }

    fn node_mut(&mut self, handle: u32) -> &mut Node {
        &mut self.nodes[handle as usize]
    }

    fn forget_former_life(&mut self, handle: u32, now: Instant) {
        self.removals += 1;
        let node = self.node_mut(handle);
        node.incarnation = 0;
        node.status = Posting::new(node.machine.report_every(), now);
        self.end_life(handle, now);
    }

    fn owe_status_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.standing, Standing::Bound) && node.status.due() <= now {
            self.owed.statuses.insert(handle);
        }
    }

    fn owe_introduction_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.standing, Standing::Bound) && node.introduction.is_due(now) {
            self.owed.introductions.insert(handle);
        }
    }

    /// The only place where a node's standing changes, so that the counts stay true.
    fn stand(&mut self, handle: u32, standing: Standing) {
        let before = std::mem::replace(&mut self.nodes[handle as usize].standing, standing);
        if let Some(count) = self.count(before) {
            *count -= 1;
        }
        if let Some(count) = self.count(standing) {
            *count += 1;
        }
    }

    fn count(&mut self, standing: Standing) -> Option<&mut usize> {
        match standing {
            Standing::Unbound { .. } | Standing::Clearing => None,
            Standing::Registering { .. } => Some(&mut self.registering),
            Standing::Bound => Some(&mut self.bound),
            Standing::Refused { .. } => Some(&mut self.refused),
        }
    }

    fn adopt(&mut self, terms: Option<v1::Terms>, now: Instant) {
        if let Some(terms) = terms {
            self.terms.adopt(terms);
            self.next_slice = self.next_slice.min(now + self.terms.beat_interval / speaking::SLICES);
        }
    }
}

// === impl Node ===

impl Node {
    fn new(pods: Workload, node: CarriedNode, now: Instant) -> Self {
        Self {
            name: node.name,
            introduction: Introduction::new(node.machine.registers(), now),
            status: Posting::new(node.machine.report_every(), now),
            machine: node.machine,
            incarnation: 0,
            standing: Standing::Unbound { since: now },
            status_revision: 0,
            pods,
            alarm: None,
        }
    }
}

// === impl Owed ===

impl Owed {
    fn forget(&mut self, handle: u32) {
        let Self { beats, bindings, registrations, pods, statuses, introductions } = self;
        for set in [beats, bindings, registrations, pods, statuses, introductions] {
            set.remove(&handle);
        }
    }
}
