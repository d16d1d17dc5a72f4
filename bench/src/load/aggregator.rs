//! A simulated aggregator: many nodes on one stream, which it binds, registers where they are missing, and beats for.
//!
//! It does what a real aggregator does and no more. It moves to another replica when its own is gone, posts every
//! status once in five minutes, and silences some or all of its nodes when it is told to.

mod carried_nodes;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use muster_proto::v1;
use muster_proto::v1::aggregator_message::Message as Up;
use muster_proto::v1::aggregator_reply::Message as Down;
use muster_proto::v1::server_message::Message as Told;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

use self::carried_nodes::{BindState, CarriedNodes};
use super::backoff::Backoff;
use super::doors::AgentDoors;
use super::last_error::LastError;
use super::slices::Slices;
use super::wire::{self, StreamId, Wire, WireEvent};
use super::{carry, node};

/// Nodes in one message: no more than a replica takes.
const BINDINGS_PER_MESSAGE: usize = 1_024;
const BINDINGS_AT_ONCE: usize = 4 * BINDINGS_PER_MESSAGE;
const HANDLES_PER_MESSAGE: usize = 4_096;
/// A replica works on no more of a stream's writes at once.
const WRITES_AT_ONCE: usize = 256;
/// Bytes that may wait to be written before more is sent.
const BACKLOG_MAX: usize = 256 << 10;
/// How often a node's status is posted, even if nothing changed.
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// The interval until the replica tells another one.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_CAP: Duration = Duration::from_secs(7);
/// How long a refused node waits before it is bound again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
const INSTRUCTIONS_MAX: usize = 16;

/// Dropping it closes the connection without notice.
pub(crate) struct SimulatedAggregator {
    pub(crate) numbers: Range<usize>,
    instructions: mpsc::Sender<Instruction>,
    _task: AbortOnDropHandle<()>,
}

/// Counts of all aggregators of a fleet together.
#[derive(Debug, Default)]
pub(crate) struct FleetCounts {
    /// Nodes that are bound.
    pub(crate) bound: AtomicUsize,
    /// Bindings and reports that were refused, which are tried again.
    pub(crate) refused: AtomicUsize,
    /// Connections that ended unasked.
    pub(crate) lost: AtomicUsize,
    pub(crate) beats: AtomicU64,
    pub(crate) statuses: AtomicU64,
    last_refusal: LastError,
}

enum Instruction {
    /// Answered with the last beat of each node.
    Silence(Vec<usize>, oneshot::Sender<Vec<(usize, Option<std::time::Instant>)>>),
    Speak(Vec<usize>),
    /// Releases all nodes and ends.
    Release(oneshot::Sender<()>),
}

struct Driver {
    doors: AgentDoors,
    door: usize,
    instance: u64,
    nodes: CarriedNodes,
    counts: Arc<FleetCounts>,
    instructions: mpsc::Receiver<Instruction>,
    slices: Slices,
    /// The next node whose status is due by the clock.
    next_status: usize,
    /// Statuses that are due by the clock, with the fraction of one carried over.
    status_debt: f64,
    statuses_wanted: VecDeque<u32>,
    /// Registrations and statuses in flight.
    writing: usize,
    sequence: u64,
    released: bool,
}

// === impl SimulatedAggregator ===

impl SimulatedAggregator {
    /// The nodes of these numbers, first at the `door`th door.
    pub(crate) fn start(
        doors: AgentDoors,
        door: usize,
        numbers: Range<usize>,
        instance: u64,
        counts: Arc<FleetCounts>,
    ) -> Self {
        let (instructions, received) = mpsc::channel(INSTRUCTIONS_MAX);
        let driver = Driver {
            doors,
            door,
            instance,
            nodes: CarriedNodes::new(numbers.clone()),
            counts,
            instructions: received,
            slices: Slices::new(BEAT_INTERVAL),
            next_status: 0,
            status_debt: 0.0,
            statuses_wanted: VecDeque::new(),
            writing: 0,
            sequence: 0,
            released: false,
        };
        Self { numbers, instructions, _task: AbortOnDropHandle::new(tokio::spawn(driver.run())) }
    }

    /// These nodes, by number, beat no more. Returns when each last did.
    pub(crate) async fn silence(&self, numbers: Vec<usize>) -> Result<Vec<(usize, Option<std::time::Instant>)>> {
        let (answer, answered) = oneshot::channel();
        self.instruct(Instruction::Silence(numbers, answer)).await?;
        Ok(answered.await?)
    }

    pub(crate) async fn speak(&self, numbers: Vec<usize>) -> Result<()> {
        self.instruct(Instruction::Speak(numbers)).await
    }

    /// Releases all nodes: no replica expects them to beat, and another stream may bind them.
    pub(crate) async fn release(self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.instruct(Instruction::Release(answer)).await?;
        Ok(answered.await?)
    }

    async fn instruct(&self, instruction: Instruction) -> Result<()> {
        ensure!(self.instructions.send(instruction).await.is_ok(), "a simulated aggregator has ended");
        Ok(())
    }
}

// === impl FleetCounts ===

impl FleetCounts {
    /// Why a node was last refused.
    pub(crate) fn last_refusal(&self) -> String {
        self.last_refusal.text()
    }

    fn refuse(&self, why: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.last_refusal.set(why);
    }
}

// === impl Driver ===

impl Driver {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RETRY_CAP);
        while !self.released {
            match self.attend(&mut backoff).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(%error, "a simulated aggregator lost its replica");
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.detached();
            backoff.pause().await;
        }
    }

    fn detached(&mut self) {
        self.counts.bound.fetch_sub(self.nodes.unbind_all(), Ordering::Relaxed);
        self.writing = 0;
        self.statuses_wanted.clear();
        self.door += 1;
    }

    /// One connection, until it ends.
    async fn attend(&mut self, backoff: &mut Backoff) -> Result<()> {
        let mut wire = Wire::connect(&self.doors.target(self.door)?).await?;
        let stream = wire.open(wire::CARRY);
        wire.send(stream, &carry::hello(self.instance));
        self.slices.due = tokio::time::Instant::now();
        while !self.released {
            let due = self.slices.due;
            tokio::select! {
                event = wire.next() => {
                    let welcomed = self.handle(event?)?;
                    if welcomed {
                        backoff.reset();
                    }
                }
                () = sleep_until(due) => self.begin_slice(&mut wire, stream),
                Some(instruction) = self.instructions.recv() => self.obey(instruction, &mut wire, stream).await?,
            }
            self.fill(&mut wire, stream);
        }
        Ok(())
    }

    /// Returns whether the event was a welcome.
    fn handle(&mut self, event: WireEvent) -> Result<bool> {
        let Some((_, message)) = carry::message(event)? else { return Ok(false) };
        match carry::decoded(message)? {
            Some(Down::Welcome(welcome)) => {
                self.adopt(welcome.terms);
                self.nodes.bind_all();
                return Ok(true);
            }
            Some(Down::Terms(terms)) => self.adopt(Some(terms)),
            Some(Down::Bound(bound)) => bound.nodes.into_iter().for_each(|node| self.bound(node)),
            Some(Down::Carried(v1::Carried { handle, message: Some(message) })) => {
                self.carried(handle, message.message);
            }
            Some(Down::Move(go)) => bail!("the replica sent the aggregator away: {}", go.why),
            Some(Down::Carried(_) | Down::Acknowledged(_)) | None => {}
        }
        Ok(false)
    }

    fn adopt(&mut self, terms: Option<v1::Terms>) {
        if let Some(terms) = terms.filter(|terms| terms.beat_interval_ms > 0) {
            self.slices.interval = Duration::from_millis(terms.beat_interval_ms.into());
        }
    }

    fn bound(&mut self, node: v1::BoundNode) {
        let handle = node.handle;
        if !node.refused.is_empty() {
            self.counts.refuse(node.refused);
            self.set_state(handle, BindState::Refused);
        } else if node.registration_wanted {
            self.set_state(handle, BindState::Unregistered);
        } else {
            self.nodes.incarnation(handle, node.incarnation);
            self.set_state(handle, BindState::Bound);
            if node.status_wanted {
                self.status_wanted(handle);
            }
        }
    }

    fn status_wanted(&mut self, handle: u32) {
        if self.nodes.ask_status(handle) {
            self.statuses_wanted.push_back(handle);
        }
    }

    fn carried(&mut self, handle: u32, message: Option<Told>) {
        match message {
            Some(Told::Welcome(welcome)) => {
                self.nodes.incarnation(handle, welcome.incarnation);
                self.set_state(handle, BindState::Bound);
            }
            Some(Told::StatusWanted(_)) => self.status_wanted(handle),
            Some(Told::StatusTaken(taken)) => {
                self.writing = self.writing.saturating_sub(usize::from(self.nodes.posted(handle)));
                if !taken.refused.is_empty() {
                    self.counts.refuse(taken.refused);
                }
            }
            Some(Told::RegistrationWanted(_) | Told::Removed(_)) => self.set_state(handle, BindState::Unregistered),
            Some(
                Told::Terms(_)
                | Told::Acknowledged(_)
                | Told::Move(_)
                | Told::Pods(_)
                | Told::PodsTaken(_)
                | Told::Registered(_),
            )
            | None => {}
        }
    }

    /// The only place where the counts of bound nodes and of writes in flight change with a node's state.
    fn set_state(&mut self, handle: u32, state: BindState) {
        let Some(before) = self.nodes.set_state(handle, state) else { return };
        if before == BindState::Registering {
            self.writing = self.writing.saturating_sub(1);
        }
        match (before == BindState::Bound, state == BindState::Bound) {
            (false, true) => drop(self.counts.bound.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.counts.bound.fetch_sub(1, Ordering::Relaxed)),
            (true, true) | (false, false) => {}
        }
    }

    async fn obey(&mut self, instruction: Instruction, wire: &mut Wire, stream: StreamId) -> Result<()> {
        match instruction {
            Instruction::Silence(numbers, answer) => {
                let last = numbers.into_iter().map(|number| (number, self.nodes.silence(number)));
                let _ = answer.send(last.collect());
            }
            Instruction::Speak(numbers) => numbers.into_iter().for_each(|number| self.speak(number)),
            Instruction::Release(answer) => {
                self.release(wire, stream).await?;
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    fn speak(&mut self, number: usize) {
        if self.nodes.speak(number)
            && let Ok(handle) = u32::try_from(number - self.nodes.first())
        {
            self.statuses_wanted.push_back(handle);
        }
    }

    /// Returns once the replica has read it.
    async fn release(&mut self, wire: &mut Wire, stream: StreamId) -> Result<()> {
        let handles: Vec<u32> = self.nodes.all_bound().collect();
        for part in handles.chunks(HANDLES_PER_MESSAGE) {
            send(wire, stream, Up::Release(v1::Release { handles: part.to_vec() }));
        }
        wire.ping(1);
        while wire.next().await? != WireEvent::Pong(1) {}
        self.counts.bound.fetch_sub(self.nodes.unbind_all(), Ordering::Relaxed);
        self.released = true;
        Ok(())
    }

    fn begin_slice(&mut self, wire: &mut Wire, stream: StreamId) {
        let handles = self.nodes.beat(&self.slices);
        for part in handles.chunks(HANDLES_PER_MESSAGE) {
            wire.send(stream, &carry::beats(part.to_vec(), 0));
        }
        self.counts.beats.fetch_add(handles.len() as u64, Ordering::Relaxed);
        self.nodes.retry_refused(&self.slices, REFUSED_PAUSE);
        let length = self.slices.length();
        self.status_debt += self.nodes.count() as f64 * length.as_secs_f64() / STATUS_EVERY.as_secs_f64();
        self.slices.advance();
    }

    /// Sends as much as there is room for, the most important messages first.
    fn fill(&mut self, wire: &mut Wire, stream: StreamId) {
        while wire.backlog() < BACKLOG_MAX && wire.has_room(stream, BACKLOG_MAX / 2) {
            let sent = self.send_bindings(wire, stream)
                || self.send_registration(wire, stream)
                || self.send_status(wire, stream);
            if !sent {
                return;
            }
        }
    }

    fn send_bindings(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        let bindings = self.nodes.take_unbound(BINDINGS_PER_MESSAGE, BINDINGS_AT_ONCE);
        if bindings.is_empty() {
            return false;
        }
        wire.send(stream, &carry::bind(bindings));
        true
    }

    fn send_registration(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        if self.writing >= WRITES_AT_ONCE {
            return false;
        }
        let Some((handle, number)) = self.nodes.take_unregistered() else { return false };
        self.writing += 1;
        let register = v1::Register { node: node::manifest(number).into(), running: Some(v1::Running::default()) };
        send(wire, stream, Up::Register(v1::CarriedRegister { handle, register: Some(register) }));
        true
    }

    fn send_status(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        if self.writing >= WRITES_AT_ONCE {
            return false;
        }
        let Some((handle, number)) = self.next_status() else { return false };
        self.writing += 1;
        self.sequence += 1;
        wire.send(stream, &carry::status(handle, self.sequence, node::status(number)));
        self.counts.statuses.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Statuses that a replica asked for come first, then those that are due by the clock.
    fn next_status(&mut self) -> Option<(u32, usize)> {
        while let Some(handle) = self.statuses_wanted.pop_front() {
            if let Some(number) = self.nodes.begin_post(handle) {
                return Some((handle, number));
            }
        }
        while self.status_debt >= 1.0 {
            self.status_debt -= 1.0;
            let handle = u32::try_from(self.next_status).ok()?;
            self.next_status = (self.next_status + 1) % self.nodes.count();
            if let Some(number) = self.nodes.begin_post(handle) {
                return Some((handle, number));
            }
        }
        None
    }
}

fn send(wire: &mut Wire, stream: StreamId, message: Up) {
    wire.send(stream, &carry::encoded(message));
}
