//! Paced streams: streams of one node each, many on a connection, that beat no oftener than nodes do.
//!
//! They misbehave when they are told to: drop all connections and come back at once, take no answers, or stop reading
//! for a while.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use muster_proto::v1;
use muster_proto::v1::aggregator_reply::Message as Down;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backoff::Backoff;
use super::carry::{self, ONLY_HANDLE};
use super::doors::AgentDoors;
use super::last_error::LastError;
use super::node;
use super::slices::Slices;
use super::wire::{self, StreamId, Wire, WireEvent, WireOptions};
use crate::measure::recovery::Recovered;

/// Connections that are set up at the same time, until [`PacedStreams::reconnect`].
const CONNECTING_AT_ONCE: usize = 16;
/// How long a refused node waits before it is bound again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_millis(50);
const BIND_TIMEOUT: Duration = Duration::from_secs(120);
/// A window that a few dozen answers fill.
const SMALL_WINDOW: WireOptions = WireOptions { window: 512, receive_buffer: None };
/// So small that soon nothing more can be sent to a connection that does not read.
const SMALL_BUFFER: WireOptions = WireOptions { window: 1 << 20, receive_buffer: Some(4 << 10) };
/// How often an answer is asked for that will not be taken.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The nodes, and how they are carried.
#[derive(Debug, Clone)]
pub(crate) struct StreamPlan {
    /// The nodes; they exist already.
    pub(crate) numbers: Range<usize>,
    pub(crate) connections: usize,
    pub(crate) door: usize,
    pub(crate) instance: u64,
    /// The time between two beats of a node.
    pub(crate) interval: Duration,
    pub(crate) behaviour: Behaviour,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Normal,
    /// The first stream of every connection asks for an answer to every beat and takes none.
    FirstTakesNoAnswers,
    /// With a small receive buffer, fit for [`PacedStreams::stop_reading`].
    SmallBuffer,
}

/// Instructions to the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    Beat,
    Reconnect,
    StopReading(Duration),
}

/// Runs until it is dropped.
pub(crate) struct PacedStreams {
    pub(crate) nodes: usize,
    pub(crate) connections: usize,
    pub(crate) counts: Arc<PacedCounts>,
    instruction: watch::Sender<Instruction>,
    connecting: Arc<Semaphore>,
    _drivers: JoinSet<()>,
}

#[derive(Debug, Default)]
pub(crate) struct PacedCounts {
    /// Nodes that are bound.
    bound: AtomicUsize,
    /// Connections that ended unasked.
    pub(crate) lost: AtomicUsize,
    /// Connections that were given up on instruction.
    left: AtomicUsize,
    /// Bindings that were refused.
    pub(crate) refused: AtomicUsize,
    /// Beats of streams that take no answers.
    pub(crate) asked: AtomicU64,
    /// The number of the newest answer that came.
    pub(crate) answered: AtomicU64,
    last_error: LastError,
}

struct Driver {
    doors: AgentDoors,
    door: usize,
    plan: Arc<StreamPlan>,
    numbers: Vec<usize>,
    counts: Arc<PacedCounts>,
    connecting: Arc<Semaphore>,
    instructions: watch::Receiver<Instruction>,
    backoff: Backoff,
}

/// One connection with its streams.
struct Connection {
    wire: Wire,
    streams: Vec<StreamId>,
    numbers: Vec<usize>,
    bound: Vec<bool>,
    bound_count: usize,
    refused: VecDeque<(Instant, usize)>,
    counts: Arc<PacedCounts>,
    slices: Slices,
    sequence: u64,
}

// === impl PacedStreams ===

impl PacedStreams {
    pub(crate) fn start(doors: &AgentDoors, plan: StreamPlan) -> Self {
        let (plan, counts) = (Arc::new(plan), Arc::<PacedCounts>::default());
        let (instruction, instructions) = watch::channel(Instruction::Beat);
        let connecting = Arc::new(Semaphore::new(CONNECTING_AT_ONCE));
        let mut drivers = JoinSet::new();
        for connection in 0..plan.connections {
            let driver = Driver {
                doors: doors.clone(),
                door: plan.door + connection,
                plan: Arc::clone(&plan),
                numbers: plan.numbers.clone().skip(connection).step_by(plan.connections).collect(),
                counts: Arc::clone(&counts),
                connecting: Arc::clone(&connecting),
                instructions: instructions.clone(),
                backoff: Backoff::new(plan.interval),
            };
            drivers.spawn(driver.run());
        }
        let (nodes, connections) = (plan.numbers.len(), plan.connections);
        Self { nodes, connections, counts, instruction, connecting, _drivers: drivers }
    }

    pub(crate) async fn wait_bound(&self) -> Result<()> {
        let waiting = async {
            while self.counts.bound.load(Ordering::Relaxed) < self.nodes {
                sleep(POLL_EVERY).await;
            }
        };
        timeout(BIND_TIMEOUT, waiting).await.with_context(|| {
            let bound = self.counts.bound.load(Ordering::Relaxed);
            format!("{bound} of {} streams are bound; the last error: {}", self.nodes, self.counts.last_error.text())
        })
    }

    /// Drops all connections without notice and begins all of them anew at once.
    pub(crate) fn reconnect(&self) {
        self.connecting.add_permits(self.connections);
        self.instruction.send_replace(Instruction::Reconnect);
    }

    /// Reads nothing for so long, while it goes on sending beats that want an answer; then drops all connections and
    /// begins them anew.
    pub(crate) fn stop_reading(&self, duration: Duration) {
        self.instruction.send_replace(Instruction::StopReading(duration));
    }

    /// How many nodes are bound, after every connection was given up once.
    pub(crate) fn recovered(&self) -> Recovered {
        // In this order: a node of a connection that has left is not counted as bound.
        let left = self.counts.left.load(Ordering::SeqCst);
        let count = self.counts.bound.load(Ordering::SeqCst);
        Recovered { count, complete: left >= self.connections && count == self.nodes }
    }
}

// === impl Behaviour ===

impl Behaviour {
    fn wire_options(self) -> WireOptions {
        match self {
            Self::Normal => WireOptions::default(),
            Self::FirstTakesNoAnswers => SMALL_WINDOW,
            Self::SmallBuffer => SMALL_BUFFER,
        }
    }
}

// === impl Driver ===

impl Driver {
    async fn run(mut self) {
        loop {
            match self.attend().await {
                Ok(()) => drop(self.counts.left.fetch_add(1, Ordering::SeqCst)),
                Err(error) => {
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                    self.counts.last_error.set(format!("{error:#}"));
                    self.backoff.pause().await;
                    self.door += 1;
                }
            }
        }
    }

    /// One connection until it is to be given up.
    async fn attend(&mut self) -> Result<()> {
        let mut turn = Some(Arc::clone(&self.connecting).acquire_owned().await?);
        let target = self.doors.target(self.door)?;
        let wire = Wire::connect_with(&target, self.plan.behaviour.wire_options()).await?;
        let mut connection = Connection::open(wire, self.numbers.clone(), &self.plan, Arc::clone(&self.counts));
        let asks = self.plan.behaviour == Behaviour::FirstTakesNoAnswers;
        let mut next_question = Instant::now();
        loop {
            tokio::select! {
                event = connection.wire.next() => connection.handle(event?)?,
                () = sleep_until(connection.slices.due) => connection.beat(),
                () = sleep_until(next_question), if asks => {
                    connection.ask_without_reading();
                    next_question = Instant::now() + ASK_EVERY;
                }
                changed = self.instructions.changed() => {
                    changed?;
                    let instruction = *self.instructions.borrow_and_update();
                    match instruction {
                        Instruction::Beat => {}
                        Instruction::Reconnect => return Ok(()),
                        Instruction::StopReading(duration) => {
                            connection.beat_without_reading(duration).await;
                            return Ok(());
                        }
                    }
                }
            }
            if connection.is_whole() {
                self.backoff.reset();
                drop(turn.take());
            }
        }
    }
}

// === impl Connection ===

impl Connection {
    fn open(mut wire: Wire, numbers: Vec<usize>, plan: &StreamPlan, counts: Arc<PacedCounts>) -> Self {
        let hello = carry::hello(plan.instance);
        let streams: Vec<StreamId> = numbers.iter().map(|_| wire.open(wire::CARRY)).collect();
        streams.iter().for_each(|stream| wire.send(*stream, &hello));
        let mut connection = Self {
            wire,
            numbers,
            bound: vec![false; streams.len()],
            bound_count: 0,
            streams,
            refused: VecDeque::new(),
            counts,
            slices: Slices::new(plan.interval),
            sequence: 0,
        };
        (0..connection.streams.len()).for_each(|place| connection.bind(place));
        connection
    }

    fn is_whole(&self) -> bool {
        self.bound_count == self.streams.len()
    }

    fn bind(&mut self, place: usize) {
        let bind = carry::bind(vec![carry::binding(ONLY_HANDLE, self.numbers[place])]);
        self.wire.send(self.streams[place], &bind);
    }

    fn handle(&mut self, event: WireEvent) -> Result<()> {
        let Some((stream, message)) = carry::message(event)? else { return Ok(()) };
        match carry::decoded(message)? {
            Some(Down::Bound(bound)) => bound.nodes.into_iter().for_each(|node| self.bound(stream, node)),
            Some(Down::Acknowledged(answer)) => {
                self.counts.answered.fetch_max(answer.sequence, Ordering::Relaxed);
            }
            Some(Down::Move(go)) => bail!("the replica sent the aggregator away: {}", go.why),
            Some(Down::Welcome(_) | Down::Terms(_) | Down::Carried(_)) | None => {}
        }
        Ok(())
    }

    fn bound(&mut self, stream: StreamId, node: v1::BoundNode) {
        let Ok(place) = self.streams.binary_search(&stream) else { return };
        let bound = node.incarnation != 0;
        match (self.bound[place], bound) {
            (false, true) => {
                self.bound_count += 1;
                self.counts.bound.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) => {
                self.bound_count -= 1;
                self.counts.bound.fetch_sub(1, Ordering::SeqCst);
            }
            (true, true) | (false, false) => {}
        }
        self.bound[place] = bound;
        if !bound {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            let name = node::name(self.numbers[place]);
            self.counts.last_error.set(format!("{name} was refused: {}", node.refused));
            self.refused.push_back((Instant::now() + REFUSED_PAUSE, place));
        }
    }

    fn beat(&mut self) {
        let message = carry::beats(vec![ONLY_HANDLE], 0);
        for place in self.slices.places(self.streams.len()) {
            self.send(place, &message);
        }
        self.slices.advance();
        while let Some((_, place)) = self.refused.pop_front_if(|(at, _)| *at <= Instant::now()) {
            self.bind(place);
        }
    }

    /// Without room nothing is sent: the replica does not read this stream.
    fn send(&mut self, place: usize, message: &[u8]) {
        let stream = self.streams[place];
        if self.bound[place] && self.wire.has_room(stream, message.len() + wire::PREFIX) {
            self.wire.send(stream, message);
        }
    }

    /// Once all nodes are bound, the first stream asks for answers and takes none.
    fn ask_without_reading(&mut self) {
        let Some(first) = self.streams.first().copied().filter(|_| self.is_whole()) else { return };
        self.wire.withhold(first);
        self.sequence += 1;
        let message = carry::beats(vec![ONLY_HANDLE], self.sequence);
        self.send(0, &message);
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Errors of the connection do not matter: it is given up afterwards.
    async fn beat_without_reading(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut broken = false;
        while Instant::now() < until {
            self.sequence += 1;
            let message = carry::beats(vec![ONLY_HANDLE], self.sequence);
            (0..self.streams.len()).for_each(|place| self.send(place, &message));
            if !broken {
                broken = matches!(timeout(self.slices.length(), self.wire.write()).await, Ok(Err(_)));
            }
            sleep_until(self.slices.due.min(until)).await;
            self.slices.advance();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counts.bound.fetch_sub(self.bound_count, Ordering::SeqCst);
    }
}
