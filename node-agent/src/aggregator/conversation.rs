//! Conversation of an aggregator: its nodes, and the messages due for each (binding, registration, beat, status, pod
//! report). It has no connection and never waits; the time is an argument.
//!
//! Outbound messages are sets of handles per kind. So they are bounded by the number of nodes, and a beat that could
//! not be sent in time is not sent twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_proto::v1;
use muster_proto::v1::aggregator_reply::Message as Down;
use tokio::time::Instant;

use crate::connection::{Dice, ReplicaLiveness, SessionFailure, SessionTerms, quoted};
use crate::machine::{AgentMachine, Fingerprint, MachineReport, StatusPosting};
use crate::pods::{NodePods, PodInbox};

use super::{AggregatedNode, AggregatorState};

mod pods;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;

pub(super) struct Conversation {
    instance: u64,
    version: String,
    dice: Dice,
    nodes: Vec<Node>,
    outbound: Outbound,
    /// When a pod of which node has to be killed next; each node at most once.
    alarms: BTreeSet<(Instant, u32)>,
    replica: Option<u64>,
    fleet: Option<Arc<str>>,
    terms: SessionTerms,
    /// Numbers statuses, reports and requests for an acknowledgement.
    sequence: u64,
    started: Instant,
    slice: u32,
    next_slice: Instant,
    liveness: ReplicaLiveness,
    bound: usize,
    registering: usize,
    refused: usize,
    removals: u64,
}

struct Node {
    name: String,
    machine: Arc<dyn AgentMachine>,
    incarnation: u64,
    binding: BindingState,
    machine_report: MachineReport,
    status: StatusPosting,
    /// The revision of the newest demand for a status; older demands are ignored.
    status_revision: u64,
    pods: NodePods,
    /// Its entry among the alarms.
    alarm: Option<Instant>,
}

#[derive(Clone, Copy)]
enum BindingState {
    Unbound {
        since: Instant,
    },
    /// Registers as soon as nothing of its former incarnation runs.
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
struct Outbound {
    beats: BTreeSet<u32>,
    bindings: BTreeSet<u32>,
    registrations: BTreeSet<u32>,
    pods: BTreeSet<u32>,
    statuses: BTreeSet<u32>,
    machine_reports: BTreeSet<u32>,
}

/// The consequence of a reply for the connection.
pub(super) enum Reaction {
    Stay,
    /// Stay, and report the failure to the owner.
    Complain(SessionFailure),
    Move,
}

// === impl Conversation ===

impl Conversation {
    pub(super) fn new(
        instance: u64,
        version: String,
        nodes: Vec<AggregatedNode>,
        inbox: &Arc<PodInbox>,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let pods = |handle, node: &AggregatedNode| NodePods::new(node.machine.runtime(), inbox.sender(handle), now);
        let nodes = (0..).zip(nodes).map(|(handle, node)| Node::new(pods(handle, &node), node, now));
        Self {
            instance,
            version,
            dice,
            nodes: nodes.collect(),
            outbound: Outbound::default(),
            alarms: BTreeSet::new(),
            replica: None,
            fleet: None,
            terms: SessionTerms::default(),
            sequence: 0,
            started: now,
            slice: 0,
            next_slice: now,
            liveness: ReplicaLiveness::new(now),
            bound: 0,
            registering: 0,
            refused: 0,
            removals: 0,
        }
    }

    pub(super) fn terms(&self) -> SessionTerms {
        self.terms
    }

    pub(super) fn state(&self) -> AggregatorState {
        AggregatorState {
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

    /// Takes a new stream into use if its first message is a welcome from the right fleet. Every node must be bound on
    /// it.
    pub(super) fn attached(
        &mut self,
        first: v1::AggregatorReply,
        endpoint: &str,
        now: Instant,
    ) -> Result<(), SessionFailure> {
        let Some(Down::Welcome(welcome)) = first.message else {
            return Err(SessionFailure::Unexpected { endpoint: endpoint.to_owned(), heard: "another message" });
        };
        if let Some(ours) = self.fleet.as_ref().filter(|ours| ***ours != *welcome.fleet) {
            let (ours, theirs) = (ours.to_string(), quoted(&welcome.fleet));
            return Err(SessionFailure::ForeignFleet { endpoint: endpoint.to_owned(), ours, theirs });
        }
        self.detached(now);
        self.liveness.heard(now);
        self.fleet = Some(welcome.fleet.into());
        self.replica = Some(welcome.replica);
        self.adopt(welcome.terms, now);
        self.next_slice = now;
        for handle in self.handles() {
            self.set_binding(handle, BindingState::Unbound { since: now });
            self.outbound.bindings.insert(handle);
        }
        Ok(())
    }

    pub(super) fn detached(&mut self, now: Instant) {
        self.replica = None;
        self.outbound = Outbound::default();
        for handle in self.handles() {
            self.set_binding(handle, BindingState::Unbound { since: now });
            self.node_mut(handle).status.detached();
        }
    }

    /// When the replica has been silent for too long; none if it is in doubt already.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        self.replica.and_then(|_| self.liveness.doubt_at(&self.terms, self.next_slice))
    }

    /// Starts to doubt the replica if it has been silent for too long.
    pub(super) fn doubt(&mut self, endpoint: &str, now: Instant) -> Option<SessionFailure> {
        self.replica.and_then(|_| self.liveness.doubt(&self.terms, self.next_slice, endpoint, now))
    }

    /// The agent should search for another replica, and keep this one until it has found one.
    pub(super) fn is_doubtful(&self) -> bool {
        self.replica.is_some() && self.liveness.is_doubtful()
    }

    pub(super) fn status_changed(&mut self, handles: BTreeSet<u32>, now: Instant) {
        for handle in handles {
            self.node_mut(handle).status.doubt();
            self.queue_status_if_due(handle, now);
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

    fn forget_former_incarnation(&mut self, handle: u32, now: Instant) {
        self.removals += 1;
        let node = self.node_mut(handle);
        node.incarnation = 0;
        node.status = StatusPosting::new(node.machine.report_every(), now);
        self.end_incarnation(handle, now);
    }

    fn queue_status_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.binding, BindingState::Bound) && node.status.due() <= now {
            self.outbound.statuses.insert(handle);
        }
    }

    fn queue_machine_report_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.binding, BindingState::Bound) && node.machine_report.is_due(now) {
            self.outbound.machine_reports.insert(handle);
        }
    }

    /// The only place where a node's binding changes, so that the counts stay true.
    fn set_binding(&mut self, handle: u32, binding: BindingState) {
        let before = std::mem::replace(&mut self.nodes[handle as usize].binding, binding);
        if let Some(count) = self.count(before) {
            *count -= 1;
        }
        if let Some(count) = self.count(binding) {
            *count += 1;
        }
    }

    fn count(&mut self, binding: BindingState) -> Option<&mut usize> {
        match binding {
            BindingState::Unbound { .. } | BindingState::Clearing => None,
            BindingState::Registering { .. } => Some(&mut self.registering),
            BindingState::Bound => Some(&mut self.bound),
            BindingState::Refused { .. } => Some(&mut self.refused),
        }
    }

    fn adopt(&mut self, terms: Option<v1::Terms>, now: Instant) {
        if let Some(terms) = terms {
            self.terms.adopt(terms);
            self.next_slice = self.next_slice.min(now + self.terms.beat_interval / sending::SLICES);
        }
    }
}

// === impl Node ===

impl Node {
    fn new(pods: NodePods, node: AggregatedNode, now: Instant) -> Self {
        Self {
            name: node.name,
            machine_report: MachineReport::new(node.machine.registers(), now),
            status: StatusPosting::new(node.machine.report_every(), now),
            machine: node.machine,
            incarnation: 0,
            binding: BindingState::Unbound { since: now },
            status_revision: 0,
            pods,
            alarm: None,
        }
    }
}

// === impl Outbound ===

impl Outbound {
    fn forget(&mut self, handle: u32) {
        let Self { beats, bindings, registrations, pods, statuses, machine_reports } = self;
        for set in [beats, bindings, registrations, pods, statuses, machine_reports] {
            set.remove(&handle);
        }
    }
}
