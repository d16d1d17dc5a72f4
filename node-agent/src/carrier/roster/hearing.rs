//! How the roster takes what the fleet says about its nodes.

use muster_proto::v1;
use muster_proto::v1::carrier_reply::Message as Down;
use muster_proto::v1::server_message::Message as NodeDown;
use tokio::time::Instant;

use crate::failure::{Failure, quoted};

use super::{Reaction, Roster, Standing};

impl Roster {
    pub(in crate::carrier) fn heard(&mut self, reply: v1::CarrierReply, now: Instant) -> Reaction {
        self.vigil.heard(now);
        // A message this version does not know is none of its business.
        let Some(reply) = reply.message else { return Reaction::Stay };
        match reply {
            Down::Welcome(welcome) => self.adopt(welcome.terms, now),
            Down::Terms(terms) => self.adopt(Some(terms), now),
            Down::Bound(bound) => return self.bound(bound.nodes, now),
            Down::Move(_) => return Reaction::Move,
            // That something was heard is all it says.
            Down::Acknowledged(_) => {}
            Down::Carried(v1::Carried { handle, message }) => return self.heard_of(handle, message, now),
        }
        Reaction::Stay
    }

    /// Of several refusals the last is told; the state counts them all.
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
            // A carrier asks for all its nodes at once.
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

    fn refuse(&mut self, handle: u32, reason: &str, now: Instant) -> Failure {
        self.owed.forget(handle);
        self.stand(handle, Standing::Refused { since: now });
        Failure::NodeRefused { node: self.node(handle).name.clone(), reason: quoted(reason) }
    }

    fn welcome(&mut self, handle: u32, incarnation: u64, status_wanted: bool, now: Instant) {
        if ![0, incarnation].contains(&self.node(handle).incarnation) {
            self.forget_former_life(handle, now);
        }
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        node.incarnation = incarnation;
        if let Standing::Registering { status, .. } = node.standing {
            node.status.registered(status, now, dice);
            node.introduction.known();
        }
        if status_wanted {
            node.status.demand();
        }
        node.pods.begin_stream();
        self.stand(handle, Standing::Bound);
        self.owed.forget(handle);
        self.owed.beats.insert(handle);
        self.owe_pods_if_due(handle, now);
        self.owe_status_if_due(handle, now);
        self.owe_introduction_if_due(handle, now);
    }

    /// Asked again while a registration is under way, the node waits for its answer: it is tried again in time.
    /// Whatever runs belongs to a life that the fleet does not know, or not any more: it ends before the next begins.
    fn registration_wanted(&mut self, handle: u32, now: Instant) {
        if self.node(handle).incarnation != 0 {
            self.forget_former_life(handle, now);
        }
        if !matches!(self.node(handle).standing, Standing::Registering { .. }) {
            self.owed.forget(handle);
            self.stand(handle, Standing::Clearing);
            self.end_life(handle, now);
        }
    }

    /// A removal of a former life is old news.
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
            self.owe_status_if_due(handle, now);
            self.owe_pods_if_due(handle, now);
        }
    }

    fn registered(&mut self, handle: u32, registered: &v1::Registered, now: Instant) -> Reaction {
        let dice = (self.dice)();
        let node = self.node_mut(handle);
        if registered.refused.is_empty() {
            node.introduction.known();
            return Reaction::Stay;
        }
        node.introduction.put_off(now, dice);
        let (node, reason) = (node.name.clone(), quoted(&registered.refused));
        Reaction::Complain(Failure::RegistrationRefused { node, reason })
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
        self.owe_status_if_due(handle, now);
        match taken.refused.is_empty() {
            true => Reaction::Stay,
            false => Reaction::Complain(Failure::StatusRefused { node: name, reason: quoted(&taken.refused) }),
        }
    }
}
