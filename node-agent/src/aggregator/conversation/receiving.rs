//! Replies of the replica: how the conversation reacts to each.

use muster_proto::v1;
use muster_proto::v1::aggregator_reply::Message as Down;
use muster_proto::v1::server_message::Message as NodeDown;
use tokio::time::Instant;

use crate::connection::{SessionFailure, quoted};

use super::{BindingState, Conversation, Reaction};

impl Conversation {
    pub(in crate::aggregator) fn heard(&mut self, reply: v1::AggregatorReply, now: Instant) -> Reaction {
        self.liveness.heard(now);
        // Messages of later versions are ignored.
        let Some(reply) = reply.message else { return Reaction::Stay };
        match reply {
            Down::Welcome(welcome) => self.adopt(welcome.terms, now),
            Down::Terms(terms) => self.adopt(Some(terms), now),
            Down::Bound(bound) => return self.bound(bound.nodes, now),
            Down::Move(_) => return Reaction::Move,
            // An acknowledgement only shows that the replica lives.
            Down::Acknowledged(_) => {}
            Down::Carried(v1::Carried { handle, message }) => return self.heard_of(handle, message, now),
        }
        Reaction::Stay
    }

    /// Of several refusals the last is reported; the state counts them all.
    fn bound(&mut self, nodes: Vec<v1::BoundNode>, now: Instant) -> Reaction {
        let mut reaction = Reaction::Stay;
        let handles = self.handles();
        for node in nodes.into_iter().filter(|node| handles.contains(&node.handle)) {
            if !node.refused.is_empty() {
                reaction = Reaction::Complain(self.refuse(node.handle, &node.refused, now));
            } else if node.registration_wanted {
                self.registration_wanted(node.handle, now);
            } else {
                self.welcome(node.handle, node.incarnation, node.status_wanted, now);
            }
        }
        reaction
    }

    fn heard_of(&mut self, handle: u32, message: Option<v1::ServerMessage>, now: Instant) -> Reaction {
        let known = self.handles().contains(&handle);
        let Some(message) = message.and_then(|message| message.message).filter(|_| known) else {
            return Reaction::Stay;
        };
        match message {
            NodeDown::Welcome(welcome) => {
                self.adopt(welcome.terms, now);
                self.welcome(handle, welcome.incarnation, welcome.status_wanted, now);
            }
            NodeDown::RegistrationWanted(_) => self.registration_wanted(handle, now),
            NodeDown::Terms(terms) => self.adopt(Some(terms), now),
            NodeDown::StatusWanted(wanted) => self.status_wanted(handle, wanted.revision, now),
            // An aggregator asks for all its nodes at once.
            NodeDown::Acknowledged(_) => {}
            NodeDown::StatusTaken(taken) => return self.status_taken(handle, &taken, now),
            NodeDown::Move(_) => return Reaction::Move,
            NodeDown::Removed(removed) => self.removed(handle, removed.incarnation, now),
            NodeDown::Pods(orders) => return self.pods_ordered(handle, orders, now),
            NodeDown::PodsTaken(taken) => return self.pods_taken(handle, &taken, now),
            NodeDown::Registered(registered) => return self.registered(handle, &registered, now),
        }
        Reaction::Stay
    }

    fn refuse(&mut self, handle: u32, reason: &str, now: Instant) -> SessionFailure {
        self.outbound.forget(handle);
        // Perhaps because another instance has its session.
        self.node_mut(handle).pods.displaced();
        self.set_binding(handle, BindingState::Refused { since: now });
        SessionFailure::NodeRefused { node: self.node(handle).name.clone(), reason: quoted(reason) }
    }

    fn welcome(&mut self, handle: u32, incarnation: u64, status_wanted: bool, now: Instant) {
        if ![0, incarnation].contains(&self.node(handle).incarnation) {
            self.forget_former_incarnation(handle, now);
        }
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        node.incarnation = incarnation;
        if let BindingState::Registering { status, .. } = node.binding {
            node.status.registered(status, now, dice);
            if !node.pods.is_idle() {
                // It was registered as not ready.
                node.status.demand();
            }
            node.machine_report.known();
        }
        if status_wanted {
            node.status.demand();
        }
        node.pods.begin_stream();
        self.set_binding(handle, BindingState::Bound);
        self.outbound.forget(handle);
        self.outbound.beats.insert(handle);
        self.queue_pods_if_due(handle, now);
        self.queue_status_if_due(handle, now);
        self.queue_machine_report_if_due(handle, now);
    }

    /// Asked again while a registration is under way, the node waits for its answer and is bound again in time. What
    /// runs belongs to an incarnation that the cluster does not know, or no longer knows: it ends before the next one
    /// begins.
    fn registration_wanted(&mut self, handle: u32, now: Instant) {
        if self.node(handle).incarnation != 0 {
            self.forget_former_incarnation(handle, now);
        }
        if !matches!(self.node(handle).binding, BindingState::Registering { .. }) {
            self.outbound.forget(handle);
            self.set_binding(handle, BindingState::Clearing);
            self.end_incarnation(handle, now);
        }
    }

    /// The removal of a former incarnation is ignored.
    fn removed(&mut self, handle: u32, incarnation: u64, now: Instant) {
        if incarnation == self.node(handle).incarnation && incarnation != 0 {
            self.registration_wanted(handle, now);
        }
    }

    fn status_wanted(&mut self, handle: u32, revision: u64, now: Instant) {
        let node = self.node_mut(handle);
        if revision >= node.status_revision {
            node.status_revision = revision;
            node.status.demand();
            node.pods.report_all();
            self.queue_status_if_due(handle, now);
            self.queue_pods_if_due(handle, now);
        }
    }

    fn registered(&mut self, handle: u32, registered: &v1::Registered, now: Instant) -> Reaction {
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        if registered.refused.is_empty() {
            node.machine_report.known();
            return Reaction::Stay;
        }
        node.machine_report.put_off(now, dice);
        let (node, reason) = (node.name.clone(), quoted(&registered.refused));
        Reaction::Complain(SessionFailure::RegistrationRefused { node, reason })
    }

    fn status_taken(&mut self, handle: u32, taken: &v1::StatusTaken, now: Instant) -> Reaction {
        let (dice, terms) = ((self.dice)(), self.terms);
        let node = self.node_mut(handle);
        if taken.refused.is_empty() {
            node.status.taken(taken.sequence, now, dice);
        } else {
            node.status.refused(taken.sequence, now, &terms);
        }
        let name = node.name.clone();
        self.queue_status_if_due(handle, now);
        match taken.refused.is_empty() {
            true => Reaction::Stay,
            false => Reaction::Complain(SessionFailure::StatusRefused { node: name, reason: quoted(&taken.refused) }),
        }
    }
}
