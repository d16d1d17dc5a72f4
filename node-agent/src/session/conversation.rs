//! What a node says to the fleet and how it takes what it hears: no waiting, no connection, the time is an argument.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::attachment::Dice;
use crate::failure::{Failure, quoted};
use crate::introduction::Introduction;
use crate::machine::{Fingerprint, Machine};
use crate::pods::{PodInsight, Workload};
use crate::status::Posting;
use crate::terms::Terms;
use crate::vigil::Vigil;

use super::acknowledgement::Waiters;

use registration::Registration;

mod pods;
mod registration;
#[cfg(test)]
mod tests;

/// Without a link there is nothing to say; this is when to look again.
const NOTHING_TO_SAY: Duration = Duration::from_secs(3600);

/// From the request to register to the welcome: a write, which may have to queue.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(15);

pub(super) struct Conversation {
    node: String,
    instance: u64,
    version: String,
    machine: Arc<dyn Machine>,
    dice: Dice,
    fleet: Option<Arc<str>>,
    incarnation: u64,
    removals: u64,
    standing: Standing,
    introduction: Introduction,
    terms: Terms,
    status: Posting,
    /// The newest demand for a status: older ones are ignored.
    status_revision: u64,
    pods: Workload,
    sequence: u64,
    next_beat: Instant,
    waiters: Waiters,
    vigil: Vigil,
}

/// Where the node stands with the replica it talks to.
enum Standing {
    Detached,
    Unregistered(Registration),
    Welcomed { replica: u64 },
}

/// What a message means for the connection.
#[derive(Debug, PartialEq)]
pub(super) enum Reaction {
    Stay,
    /// Stay, but tell the owner.
    Complain(Failure),
    Move,
    Leave(Failure),
}

/// What to do now that something is due.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    Say(v1::AgentMessage),
    Leave(Failure),
    Nothing,
}

// === impl Conversation ===

impl Conversation {
    pub(super) fn new(
        node: String,
        instance: u64,
        version: String,
        machine: Arc<dyn Machine>,
        pods: Workload,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let status = Posting::new(machine.report_every(), now);
        let introduction = Introduction::new(machine.registers(), now);
        Self {
            node,
            instance,
            version,
            machine,
            dice,
            fleet: None,
            incarnation: 0,
            removals: 0,
            standing: Standing::Detached,
            introduction,
            terms: Terms::default(),
            status,
            status_revision: 0,
            pods,
            sequence: 0,
            next_beat: now,
            waiters: Waiters::default(),
            vigil: Vigil::new(now),
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn fleet(&self) -> Option<Arc<str>> {
        self.fleet.clone()
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn pods(&self) -> Vec<PodInsight> {
        self.pods.insight()
    }

    pub(super) fn removals(&self) -> u64 {
        self.removals
    }

    pub(super) fn replica(&self) -> Option<u64> {
        match self.standing {
            Standing::Welcomed { replica } => Some(replica),
            Standing::Detached | Standing::Unregistered(_) => None,
        }
    }

    pub(super) fn hello(&self, moving: bool) -> v1::AgentMessage {
        wrap(Up::Hello(v1::Hello {
            node: self.node.clone(),
            instance: self.instance,
            incarnation: self.incarnation,
            moving,
            version: self.version.clone(),
            orders_revision: self.pods.orders_revision(),
        }))
    }

    pub(super) fn goodbye() -> v1::AgentMessage {
        wrap(Up::Goodbye(v1::Goodbye {}))
    }

    /// Whether the first message of a stream means that the node is taken in there.
    pub(super) fn accepts(&self, first: &v1::ServerMessage, door: &str) -> Result<(), Failure> {
        match &first.message {
            Some(Down::Welcome(welcome)) => self.require_our_fleet(welcome, door),
            Some(Down::RegistrationWanted(_)) => Ok(()),
            Some(other) => Err(Failure::Unexpected { door: door.to_owned(), heard: name_of(other) }),
            None => Err(Failure::Unexpected { door: door.to_owned(), heard: "something unknown" }),
        }
    }

    pub(super) fn detached(&mut self) {
        self.standing = Standing::Detached;
        self.status.detached();
    }

    /// The owner says that the status may have changed.
    pub(super) fn status_changed(&mut self) {
        self.status.doubt();
    }

    /// The status must be posted even if the fleet seems to know it, and so must the state of the pods.
    pub(super) fn status_demanded(&mut self) {
        self.status.demand();
        self.pods.report_all();
    }

    pub(super) fn acknowledge(&mut self, answer: oneshot::Sender<()>, now: Instant) {
        self.waiters.add(answer, self.sequence + 1);
        self.next_beat = now;
    }

    pub(super) fn heard(&mut self, message: v1::ServerMessage, door: &str, now: Instant) -> Reaction {
        self.vigil.heard(now);
        // A message this version does not know is none of its business.
        let Some(message) = message.message else { return Reaction::Stay };
        match message {
            Down::Welcome(welcome) => return self.welcomed(welcome, door, now),
            Down::RegistrationWanted(_) => return self.registration_wanted(now),
            Down::Terms(terms) => self.adopt(terms, now),
            Down::StatusWanted(wanted) => self.status_wanted(wanted.revision),
            Down::Acknowledged(acknowledged) => self.waiters.acknowledged(acknowledged.sequence),
            Down::StatusTaken(taken) => return self.status_taken(taken, now),
            Down::Move(_) => return Reaction::Move,
            Down::Removed(removed) => return self.removed(removed.incarnation, now),
            Down::Pods(orders) => return self.pods_ordered(orders, now),
            Down::PodsTaken(taken) => return self.pods_taken(taken, now),
            Down::Registered(registered) => return self.registered(&registered, now),
        }
        Reaction::Stay
    }

    /// When something has to be said next.
    pub(super) fn deadline(&self) -> Instant {
        match &self.standing {
            Standing::Detached => self.next_beat + NOTHING_TO_SAY,
            Standing::Unregistered(registration) => {
                registration.deadline(self.pods.is_idle()).unwrap_or(self.next_beat + NOTHING_TO_SAY)
            }
            Standing::Welcomed { .. } => {
                let others = [self.pods.report_due(), self.introduction.due()];
                others.into_iter().flatten().fold(self.next_beat.min(self.status.due()), Instant::min)
            }
        }
    }

    /// When the replica has been silent for too long, unless it is in doubt already.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        self.replica().and_then(|_| self.vigil.doubt_at(&self.terms, self.next_beat))
    }

    /// Begins to doubt the replica if it is time to.
    pub(super) fn doubt(&mut self, door: &str, now: Instant) -> Option<Failure> {
        self.replica().and_then(|_| self.vigil.doubt(&self.terms, self.next_beat, door, now))
    }

    /// Another replica should be looked for, although this one is kept until then.
    pub(super) fn is_doubtful(&self) -> bool {
        self.replica().is_some() && self.vigil.is_doubtful()
    }

    pub(super) fn turn(&mut self, door: &str, now: Instant) -> Turn {
        match &self.standing {
            Standing::Detached => Turn::Nothing,
            Standing::Unregistered(registration) if registration.is_due(self.pods.is_idle(), now) => {
                Turn::Say(self.register(now))
            }
            Standing::Unregistered(registration) if registration.is_overdue(now) => {
                let (door, patience) = (door.to_owned(), REGISTRATION_PATIENCE);
                Turn::Leave(Failure::Late { door, what: "register this node", patience })
            }
            Standing::Unregistered(_) => Turn::Nothing,
            Standing::Welcomed { .. } if self.next_beat <= now => Turn::Say(self.beat(now)),
            // Before the status, which may be refused until the fleet knows what has stopped.
            Standing::Welcomed { .. } if self.pods.report_due().is_some_and(|due| due <= now) => {
                self.report_pods(now).map_or(Turn::Nothing, Turn::Say)
            }
            Standing::Welcomed { .. } if self.status.due() <= now => self.post(now).map_or(Turn::Nothing, Turn::Say),
            Standing::Welcomed { .. } if self.introduction.is_due(now) => Turn::Say(self.introduce(now)),
            Standing::Welcomed { .. } => Turn::Nothing,
        }
    }

    fn welcomed(&mut self, welcome: v1::Welcome, door: &str, now: Instant) -> Reaction {
        if let Err(failure) = self.require_our_fleet(&welcome, door) {
            return Reaction::Leave(failure);
        }
        self.fleet.get_or_insert_with(|| welcome.fleet.as_str().into());
        if !self.pods.belongs_to(&welcome.fleet) {
            let reason = "this node last followed the orders of another fleet, which are void here".to_owned();
            return Reaction::Leave(Failure::Lost { door: door.to_owned(), reason });
        }
        if self.incarnation != 0 && self.incarnation != welcome.incarnation {
            self.forget_former_life(now);
        } else if self.replica().is_some() {
            // A replica of an earlier version answers so what it was told of the machine; the stream goes on.
            self.introduction.known();
            return Reaction::Stay;
        }
        self.incarnation = welcome.incarnation;
        let replica = welcome.replica;
        let before = std::mem::replace(&mut self.standing, Standing::Welcomed { replica });
        if let Standing::Unregistered(Registration { status: Some(status), .. }) = before {
            self.status.registered(status, now, (self.dice)());
            self.introduction.known();
        }
        if welcome.status_wanted {
            self.status.demand();
        }
        if let Some(terms) = welcome.terms {
            self.terms.adopt(terms);
        }
        self.pods.begin_stream();
        self.next_beat = now;
        Reaction::Stay
    }

    fn require_our_fleet(&self, welcome: &v1::Welcome, door: &str) -> Result<(), Failure> {
        match &self.fleet {
            Some(ours) if **ours != *welcome.fleet => Err(Failure::ForeignFleet {
                door: door.to_owned(),
                ours: ours.to_string(),
                theirs: quoted(&welcome.fleet),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Asked a second time, the node registers again after a pause: the first registration may still be under way.
    /// Whatever runs belongs to a life that the fleet does not know, or not any more: it ends before the next begins.
    fn registration_wanted(&mut self, now: Instant) -> Reaction {
        if self.incarnation != 0 {
            self.forget_former_life(now);
        }
        self.pods.end_life(now);
        // Whether an operator has created it meanwhile, the next hello will show.
        if !self.machine.registers() {
            return Reaction::Leave(Failure::NotCreated { node: self.node.clone() });
        }
        if let Standing::Unregistered(registration) = &mut self.standing {
            let pause = registration.backoff.pause(self.terms.backoff_cap, (self.dice)());
            registration.wanted_again(now + pause);
        } else {
            self.standing = Standing::Unregistered(Registration::wanted(now));
        }
        Reaction::Stay
    }

    /// A removal of a former life is old news.
    fn removed(&mut self, incarnation: u64, now: Instant) -> Reaction {
        match incarnation == self.incarnation && incarnation != 0 {
            true => self.registration_wanted(now),
            false => Reaction::Stay,
        }
    }

    fn forget_former_life(&mut self, now: Instant) {
        self.removals += 1;
        self.incarnation = 0;
        self.status = Posting::new(self.machine.report_every(), now);
        self.pods.end_life(now);
    }

    fn adopt(&mut self, terms: v1::Terms, now: Instant) {
        self.terms.adopt(terms);
        self.next_beat = self.next_beat.min(now + self.terms.beat_interval);
    }

    fn status_wanted(&mut self, revision: u64) {
        if revision >= self.status_revision {
            self.status_revision = revision;
            self.status_demanded();
        }
    }

    fn status_taken(&mut self, taken: v1::StatusTaken, now: Instant) -> Reaction {
        if taken.refused.is_empty() {
            self.status.taken(taken.sequence, now, (self.dice)());
            return Reaction::Stay;
        }
        self.status.refused(taken.sequence, now, &self.terms);
        Reaction::Complain(Failure::StatusRefused { node: self.node.clone(), reason: quoted(&taken.refused) })
    }

    fn register(&mut self, now: Instant) -> v1::AgentMessage {
        if let Standing::Unregistered(registration) = &mut self.standing {
            registration.asked(Fingerprint::of(&self.machine.status_json()), now);
        }
        wrap(Up::Register(v1::Register { node: self.machine.node_json(), running: Some(self.pods.running()) }))
    }

    /// Says what the machine is, although nobody asked.
    fn introduce(&mut self, now: Instant) -> v1::AgentMessage {
        self.introduction.put_off(now, (self.dice)());
        wrap(Up::Register(v1::Register { node: self.machine.node_json(), running: None }))
    }

    fn registered(&mut self, registered: &v1::Registered, now: Instant) -> Reaction {
        if registered.refused.is_empty() {
            self.introduction.known();
            return Reaction::Stay;
        }
        self.introduction.put_off(now, (self.dice)());
        Reaction::Complain(Failure::RegistrationRefused {
            node: self.node.clone(),
            reason: quoted(&registered.refused),
        })
    }

    fn beat(&mut self, now: Instant) -> v1::AgentMessage {
        let sequence = self.speak(now);
        let acknowledge = self.waiters.any() || self.vigil.wants_word(&self.terms, now);
        if acknowledge {
            self.vigil.asked(now);
        }
        wrap(Up::Beat(v1::Beat { sequence, acknowledge }))
    }

    /// A status is answered when it is written, which may take its time. So it does not stand in for a beat that would
    /// ask whether the replica still listens.
    fn post(&mut self, now: Instant) -> Option<v1::AgentMessage> {
        let status = self.status.post(self.machine.status_json(), self.sequence + 1, now, &self.terms)?;
        let beat_due = self.next_beat;
        let sequence = self.speak(now);
        if self.vigil.wants_word(&self.terms, now) {
            self.next_beat = beat_due;
        }
        let running = Some(self.pods.running());
        Some(wrap(Up::Status(v1::StatusReport { sequence, status, running })))
    }

    /// Whatever is said counts as a beat, so the next one is due an interval later.
    fn speak(&mut self, now: Instant) -> u64 {
        self.sequence += 1;
        self.next_beat = now + self.terms.next_beat_in((self.dice)());
        self.sequence
    }
}

fn wrap(message: Up) -> v1::AgentMessage {
    v1::AgentMessage { message: Some(message) }
}

fn name_of(message: &Down) -> &'static str {
    match message {
        Down::Welcome(_) => "Welcome",
        Down::RegistrationWanted(_) => "RegistrationWanted",
        Down::Terms(_) => "Terms",
        Down::StatusWanted(_) => "StatusWanted",
        Down::Acknowledged(_) => "Acknowledged",
        Down::StatusTaken(_) => "StatusTaken",
        Down::Move(_) => "Move",
        Down::Removed(_) => "Removed",
        Down::Pods(_) => "PodOrders",
        Down::PodsTaken(_) => "PodsTaken",
        Down::Registered(_) => "Registered",
    }
}
