//! Conversation of one node with its replica: what to send and how to react to each message. It has no connection and
//! never waits; the time is an argument.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::agent_bound;
use muster_proto::protocol::{AGENT_PROTOCOL, ProtocolRange};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::{Dice, ReplicaLiveness, SessionFailure, SessionTerms, quoted};
use crate::machine::{AgentMachine, Fingerprint, MachineReport, StatusPosting, registration_json};
use crate::pods::{NodePods, PodSnapshot};

use super::acknowledgement::Waiters;

use registration::Registration;

mod pods;
mod registration;
#[cfg(test)]
mod tests;

/// Without a link nothing is due; this is when to check again.
const NOTHING_TO_SAY: Duration = Duration::from_secs(3600);

/// From the registration to the welcome: a write, which may have to queue.
const REGISTRATION_TIMEOUT: Duration = Duration::from_millis(agent_bound::REGISTRATION_MAX.0);

pub(super) struct Conversation {
    node: String,
    instance: u64,
    version: String,
    machine: Arc<dyn AgentMachine>,
    dice: Dice,
    fleet: Option<Arc<str>>,
    incarnation: u64,
    removals: u64,
    state: WelcomeState,
    machine_report: MachineReport,
    terms: SessionTerms,
    status: StatusPosting,
    /// The revision of the newest demand for a status; older demands are ignored.
    status_revision: u64,
    pods: NodePods,
    sequence: u64,
    next_beat: Instant,
    waiters: Waiters,
    liveness: ReplicaLiveness,
    protocol: ProtocolRange,
    /// What the replica lacks of the protocol.
    lacking: Option<Arc<str>>,
}

/// How far the replica has accepted this node.
enum WelcomeState {
    Detached,
    Unregistered(Registration),
    Welcomed { replica: u64 },
}

/// The consequence of a message for the connection.
#[derive(Debug, PartialEq)]
pub(super) enum Reaction {
    Stay,
    /// Stay, and report the failure to the owner.
    Complain(SessionFailure),
    Move,
    Leave(SessionFailure),
}

/// What to do when something is due.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    Send(v1::AgentMessage),
    Leave(SessionFailure),
    Nothing,
}

// === impl Conversation ===

impl Conversation {
    pub(super) fn new(
        node: String,
        instance: u64,
        version: String,
        machine: Arc<dyn AgentMachine>,
        pods: NodePods,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let status = StatusPosting::new(machine.report_every(), now);
        let machine_report = MachineReport::new(machine.registers(), now);
        Self {
            node,
            instance,
            version,
            machine,
            dice,
            fleet: None,
            incarnation: 0,
            removals: 0,
            state: WelcomeState::Detached,
            machine_report,
            terms: SessionTerms::default(),
            status,
            status_revision: 0,
            pods,
            sequence: 0,
            next_beat: now,
            waiters: Waiters::default(),
            liveness: ReplicaLiveness::new(now),
            protocol: AGENT_PROTOCOL,
            lacking: None,
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn terms(&self) -> SessionTerms {
        self.terms
    }

    pub(super) fn fleet(&self) -> Option<Arc<str>> {
        self.fleet.clone()
    }

    pub(super) fn lacking(&self) -> Option<Arc<str>> {
        self.lacking.clone()
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn pods(&self) -> Vec<PodSnapshot> {
        self.pods.snapshot()
    }

    pub(super) fn removals(&self) -> u64 {
        self.removals
    }

    pub(super) fn replica(&self) -> Option<u64> {
        match self.state {
            WelcomeState::Welcomed { replica } => Some(replica),
            WelcomeState::Detached | WelcomeState::Unregistered(_) => None,
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
            protocol_min: self.protocol.min,
            protocol_max: self.protocol.max,
            continues: self.pods.continues(),
        }))
    }

    pub(super) fn goodbye() -> v1::AgentMessage {
        wrap(Up::Goodbye(v1::Goodbye {}))
    }

    /// Whether the first message of a stream accepts this node.
    pub(super) fn accepts(&self, first: &v1::ServerMessage, endpoint: &str) -> Result<(), SessionFailure> {
        match &first.message {
            Some(Down::Welcome(welcome)) => self.require_our_fleet(welcome, endpoint),
            Some(Down::RegistrationWanted(_)) => Ok(()),
            Some(other) => Err(SessionFailure::Unexpected { endpoint: endpoint.to_owned(), heard: name_of(other) }),
            None => Err(SessionFailure::Unexpected { endpoint: endpoint.to_owned(), heard: "an unknown message" }),
        }
    }

    /// Another agent has the session of this node.
    pub(super) fn displaced(&mut self) {
        self.pods.displaced();
    }

    pub(super) fn detached(&mut self) {
        self.state = WelcomeState::Detached;
        self.status.detached();
    }

    /// The owner announced that the status may have changed.
    pub(super) fn status_changed(&mut self) {
        self.status.doubt();
    }

    /// The status must be posted even if the cluster seems to know it, and so must the state of the pods.
    pub(super) fn status_demanded(&mut self) {
        self.status.demand();
        self.pods.report_all();
    }

    pub(super) fn acknowledge(&mut self, answer: oneshot::Sender<()>, now: Instant) {
        self.waiters.add(answer, self.sequence + 1);
        self.next_beat = now;
    }

    pub(super) fn heard(&mut self, message: v1::ServerMessage, endpoint: &str, now: Instant) -> Reaction {
        self.liveness.heard(now);
        // Messages of later versions are ignored.
        let Some(message) = message.message else { return Reaction::Stay };
        match message {
            Down::Welcome(welcome) => return self.welcomed(welcome, endpoint, now),
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

    /// When the next message is due.
    pub(super) fn deadline(&self) -> Instant {
        match &self.state {
            WelcomeState::Detached => self.next_beat + NOTHING_TO_SAY,
            WelcomeState::Unregistered(registration) => {
                let clear_from = self.pods.clear_from(self.next_beat);
                registration.deadline(clear_from).unwrap_or(self.next_beat + NOTHING_TO_SAY)
            }
            WelcomeState::Welcomed { .. } => {
                let others = [self.pods.report_due(), self.machine_report.due()];
                others.into_iter().flatten().fold(self.next_beat.min(self.status.due()), Instant::min)
            }
        }
    }

    /// When the replica has been silent for too long; none if it is in doubt already.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        self.replica().and_then(|_| self.liveness.doubt_at(&self.terms, self.next_beat))
    }

    /// Starts to doubt the replica if it has been silent for too long.
    pub(super) fn doubt(&mut self, endpoint: &str, now: Instant) -> Option<SessionFailure> {
        self.replica().and_then(|_| self.liveness.doubt(&self.terms, self.next_beat, endpoint, now))
    }

    /// The agent should search for another replica, and keep this one until it has found one.
    pub(super) fn is_doubtful(&self) -> bool {
        self.replica().is_some() && self.liveness.is_doubtful()
    }

    pub(super) fn turn(&mut self, endpoint: &str, now: Instant) -> Turn {
        match &self.state {
            WelcomeState::Detached => Turn::Nothing,
            WelcomeState::Unregistered(registration) if registration.is_due(self.pods.clear_from(now), now) => {
                Turn::Send(self.register(now))
            }
            WelcomeState::Unregistered(registration) if registration.is_overdue(now) => {
                let (endpoint, limit) = (endpoint.to_owned(), REGISTRATION_TIMEOUT);
                Turn::Leave(SessionFailure::Late { endpoint, what: "register this node", limit })
            }
            WelcomeState::Unregistered(_) => Turn::Nothing,
            WelcomeState::Welcomed { .. } if self.next_beat <= now => Turn::Send(self.beat(now)),
            // Before the status, which may be refused until the cluster knows which pods have stopped.
            WelcomeState::Welcomed { .. } if self.pods.report_due().is_some_and(|due| due <= now) => {
                self.report_pods(now).map_or(Turn::Nothing, Turn::Send)
            }
            WelcomeState::Welcomed { .. } if self.status.due() <= now => {
                self.post(now).map_or(Turn::Nothing, Turn::Send)
            }
            WelcomeState::Welcomed { .. } if self.machine_report.is_due(now) => Turn::Send(self.report_machine(now)),
            WelcomeState::Welcomed { .. } => Turn::Nothing,
        }
    }

    fn welcomed(&mut self, welcome: v1::Welcome, endpoint: &str, now: Instant) -> Reaction {
        if let Err(failure) = self.require_our_fleet(&welcome, endpoint) {
            return Reaction::Leave(failure);
        }
        self.fleet.get_or_insert_with(|| welcome.fleet.as_str().into());
        if !self.pods.belongs_to(&welcome.fleet) {
            let reason = "this node last followed the orders of another fleet, which do not apply here".to_owned();
            return Reaction::Leave(SessionFailure::Lost { endpoint: endpoint.to_owned(), reason });
        }
        if self.incarnation != 0 && self.incarnation != welcome.incarnation {
            self.forget_former_incarnation(now);
        } else if self.replica().is_some() {
            // A replica of an earlier version answers the machine report with a second welcome; the stream goes on.
            self.machine_report.known();
            return Reaction::Stay;
        }
        self.incarnation = welcome.incarnation;
        let replica = welcome.replica;
        self.note_protocol(replica, ProtocolRange::of_wire(welcome.protocol_min, welcome.protocol_max));
        let before = std::mem::replace(&mut self.state, WelcomeState::Welcomed { replica });
        if let WelcomeState::Unregistered(Registration { status: Some(status), .. }) = before {
            self.status.registered(status, now, (self.dice)());
            if !self.pods.is_idle() {
                // It was registered as not ready.
                self.status.demand();
            }
            self.machine_report.known();
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

    /// Said once, and shown for as long as it is so.
    fn note_protocol(&mut self, replica: u64, spoken: ProtocolRange) {
        let lacking = self.protocol.lacking(spoken).map(|what| format!("replica {replica} {what}").into());
        if lacking != self.lacking
            && let Some(lacking) = &lacking
        {
            tracing::info!(node = self.node, "{lacking}; upgrade the replicas");
        }
        self.lacking = lacking;
    }

    fn require_our_fleet(&self, welcome: &v1::Welcome, endpoint: &str) -> Result<(), SessionFailure> {
        match &self.fleet {
            Some(ours) if **ours != *welcome.fleet => Err(SessionFailure::ForeignFleet {
                endpoint: endpoint.to_owned(),
                ours: ours.to_string(),
                theirs: quoted(&welcome.fleet),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Asked a second time, the node registers again after a pause, because the first registration may still be under
    /// way. What runs belongs to an incarnation that the cluster does not know, or no longer knows: it ends before the
    /// next one begins.
    fn registration_wanted(&mut self, now: Instant) -> Reaction {
        if self.incarnation != 0 {
            self.forget_former_incarnation(now);
        }
        self.pods.end_incarnation(now);
        // The next hello shows whether an operator has created the Node meanwhile.
        if !self.machine.registers() {
            return Reaction::Leave(SessionFailure::NotCreated { node: self.node.clone() });
        }
        if let WelcomeState::Unregistered(registration) = &mut self.state {
            let pause = registration.backoff.pause(self.terms.backoff_cap, (self.dice)());
            registration.wanted_again(now + pause);
        } else {
            self.state = WelcomeState::Unregistered(Registration::wanted(now));
        }
        Reaction::Stay
    }

    /// The removal of a former incarnation is ignored.
    fn removed(&mut self, incarnation: u64, now: Instant) -> Reaction {
        match incarnation == self.incarnation && incarnation != 0 {
            true => self.registration_wanted(now),
            false => Reaction::Stay,
        }
    }

    fn forget_former_incarnation(&mut self, now: Instant) {
        self.removals += 1;
        self.incarnation = 0;
        self.status = StatusPosting::new(self.machine.report_every(), now);
        self.pods.end_incarnation(now);
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
        Reaction::Complain(SessionFailure::StatusRefused { node: self.node.clone(), reason: quoted(&taken.refused) })
    }

    fn register(&mut self, now: Instant) -> v1::AgentMessage {
        if let WelcomeState::Unregistered(registration) = &mut self.state {
            registration.asked(Fingerprint::of(&self.machine.status_json()), now);
        }
        let node = registration_json(self.machine.as_ref(), self.pods.is_idle());
        wrap(Up::Register(v1::Register { node, running: Some(self.pods.running()) }))
    }

    /// Reports the machine without being asked.
    fn report_machine(&mut self, now: Instant) -> v1::AgentMessage {
        self.machine_report.put_off(now, (self.dice)());
        wrap(Up::Register(v1::Register { node: self.machine.node_json(), running: None }))
    }

    fn registered(&mut self, registered: &v1::Registered, now: Instant) -> Reaction {
        if registered.refused.is_empty() {
            self.machine_report.known();
            return Reaction::Stay;
        }
        self.machine_report.put_off(now, (self.dice)());
        Reaction::Complain(SessionFailure::RegistrationRefused {
            node: self.node.clone(),
            reason: quoted(&registered.refused),
        })
    }

    fn beat(&mut self, now: Instant) -> v1::AgentMessage {
        let sequence = self.next_sequence(now);
        let acknowledge = self.waiters.any() || self.liveness.wants_answer(&self.terms, now);
        if acknowledge {
            self.liveness.asked(now);
        }
        wrap(Up::Beat(v1::Beat { sequence, acknowledge }))
    }

    /// A status is answered when it is written, which may take a while. So it does not replace a beat that would ask
    /// whether the replica still answers.
    fn post(&mut self, now: Instant) -> Option<v1::AgentMessage> {
        let status = self.status.post(self.machine.status_json(), self.sequence + 1, now, &self.terms)?;
        let beat_due = self.next_beat;
        let sequence = self.next_sequence(now);
        if self.liveness.wants_answer(&self.terms, now) {
            self.next_beat = beat_due;
        }
        let running = Some(self.pods.running());
        Some(wrap(Up::Status(v1::StatusReport { sequence, status, running })))
    }

    /// Every message counts as a beat, so the next one is due an interval later.
    fn next_sequence(&mut self, now: Instant) -> u64 {
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
