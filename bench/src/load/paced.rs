//! Streams of one node each that beat as seldom as nodes do, many on a connection, and that behave badly when they are
//! told to: drop all connections and come back at once, take no answers, or read nothing at all for a while.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::carrier_reply::Message as Down;
use prost::Message as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::comeback::Present;
use crate::load::doors::Doors;
use crate::node;
use crate::wire::{self, Event, Opening, StreamId, Wire};

/// The only node of a stream.
const HANDLE: u32 = 0;
/// The beats of an interval are spread over so many parts of it.
const SLICES: usize = 20;
/// Connections that are set up at the same time, at first.
const BEGINNING_AT_ONCE: usize = 16;
/// How long a refused node waits before it is bound again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);
/// A window that a few dozen answers fill.
const CHOKED: Opening = Opening { window: 512, receive_buffer: None };
/// So small that soon nothing more can be sent to whoever does not read.
const NARROW: Opening = Opening { window: 1 << 20, receive_buffer: Some(4 << 10) };
/// How often an answer is asked for that will not be taken.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Which nodes, and how they are carried.
#[derive(Debug, Clone)]
pub struct Plan {
    /// They exist already.
    pub numbers: Range<usize>,
    pub connections: usize,
    pub door: usize,
    pub instance: u64,
    /// Between two beats of a node.
    pub interval: Duration,
    pub manner: Manner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Plain,
    /// The first stream of every connection wants every beat answered and takes no answer.
    Choking,
    /// Fit for [`Paced::deafen`].
    Narrow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Beat,
    Reconnect,
    Deafen(Duration),
}

/// Runs until it is dropped.
pub struct Paced {
    pub nodes: usize,
    pub connections: usize,
    pub tally: Arc<Tally>,
    orders: watch::Sender<Order>,
    gate: Arc<Semaphore>,
    _drivers: JoinSet<()>,
}

#[derive(Debug, Default)]
pub struct Tally {
    /// Nodes.
    pub bound: AtomicUsize,
    /// Connections that ended without being told to.
    pub lost: AtomicUsize,
    /// Connections that were given up as they were told to.
    pub left: AtomicUsize,
    pub refused: AtomicUsize,
    pub said: AtomicU64,
    /// Of streams that take no answers.
    pub asked: AtomicU64,
    /// The number of the newest answer that came.
    pub answered: AtomicU64,
    last_trouble: Mutex<Option<String>>,
}

struct Driver {
    doors: Doors,
    door: usize,
    plan: Arc<Plan>,
    numbers: Vec<usize>,
    tally: Arc<Tally>,
    gate: Arc<Semaphore>,
    orders: watch::Receiver<Order>,
    pause: Duration,
}

/// One connection with its streams.
struct Line {
    wire: Wire,
    streams: Vec<StreamId>,
    names: Vec<String>,
    bound: Vec<bool>,
    bound_count: usize,
    refused: VecDeque<(Instant, usize)>,
    tally: Arc<Tally>,
    step: Duration,
    slice: usize,
    next_slice: Instant,
    sequence: u64,
}

// === impl Paced ===

impl Paced {
    pub fn start(doors: &Doors, plan: Plan) -> Self {
        let (plan, tally) = (Arc::new(plan), Arc::<Tally>::default());
        let (orders, taken) = watch::channel(Order::Beat);
        let gate = Arc::new(Semaphore::new(BEGINNING_AT_ONCE));
        let mut drivers = JoinSet::new();
        for connection in 0..plan.connections {
            let driver = Driver {
                doors: doors.clone(),
                door: plan.door + connection,
                plan: Arc::clone(&plan),
                numbers: plan.numbers.clone().skip(connection).step_by(plan.connections).collect(),
                tally: Arc::clone(&tally),
                gate: Arc::clone(&gate),
                orders: taken.clone(),
                pause: RETRY_FIRST,
            };
            drivers.spawn(driver.run());
        }
        let (nodes, connections) = (plan.numbers.len(), plan.connections);
        Self { nodes, connections, tally, orders, gate, _drivers: drivers }
    }

    pub async fn wait_bound(&self) -> Result<()> {
        let waiting = async {
            while self.tally.bound.load(Ordering::Relaxed) < self.nodes {
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(PATIENCE, waiting).await.with_context(|| {
            let bound = self.tally.bound.load(Ordering::Relaxed);
            format!("{bound} of {} streams are bound; the last trouble: {:?}", self.nodes, self.tally.last_trouble())
        })
    }

    /// All connections are dropped without a word, and all begin anew at once.
    pub fn reconnect(&self) {
        self.gate.add_permits(self.connections);
        self.orders.send_replace(Order::Reconnect);
    }

    /// Nothing is read for so long, while beats that want to be answered are said on; then all connections are dropped
    /// and begin anew.
    pub fn deafen(&self, duration: Duration) {
        self.orders.send_replace(Order::Deafen(duration));
    }

    /// After everybody was sent away `times` times.
    pub fn back(&self, times: usize) -> Present {
        // In this order: whoever has left is not counted as bound.
        let left = self.tally.left.load(Ordering::SeqCst);
        let count = self.tally.bound.load(Ordering::SeqCst);
        Present { count, complete: left >= times * self.connections && count == self.nodes }
    }
}

// === impl Tally ===

impl Tally {
    /// Why a connection last ended or a node was last refused.
    pub fn last_trouble(&self) -> Option<String> {
        self.last_trouble.lock().ok()?.clone()
    }

    fn trouble(&self, why: String) {
        if let Ok(mut last) = self.last_trouble.lock() {
            *last = Some(why);
        }
    }
}

// === impl Manner ===

impl Manner {
    fn opening(self) -> Opening {
        match self {
            Self::Plain => Opening::default(),
            Self::Choking => CHOKED,
            Self::Narrow => NARROW,
        }
    }
}

// === impl Driver ===

impl Driver {
    async fn run(mut self) {
        loop {
            match self.attend().await {
                Ok(()) => drop(self.tally.left.fetch_add(1, Ordering::SeqCst)),
                Err(error) => {
                    self.tally.lost.fetch_add(1, Ordering::Relaxed);
                    self.tally.trouble(format!("{error:#}"));
                    sleep(self.pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
                    self.pause = (self.pause * 2).min(self.plan.interval);
                    self.door += 1;
                }
            }
        }
    }

    /// One connection until it is to be given up.
    async fn attend(&mut self) -> Result<()> {
        let mut turn = Some(Arc::clone(&self.gate).acquire_owned().await?);
        let target = self.doors.target(self.door)?;
        let wire = Wire::connect_with(&target, self.plan.manner.opening()).await?;
        let mut line = Line::open(wire, &self.numbers, &self.plan, Arc::clone(&self.tally));
        let (choking, mut next_question) = (self.plan.manner == Manner::Choking, Instant::now());
        loop {
            tokio::select! {
                event = line.wire.next() => line.happened(event?)?,
                () = sleep_until(line.next_slice) => line.beat(),
                () = sleep_until(next_question), if choking => {
                    line.choke();
                    next_question = Instant::now() + ASK_EVERY;
                }
                changed = self.orders.changed() => {
                    changed?;
                    let order = *self.orders.borrow_and_update();
                    match order {
                        Order::Beat => {}
                        Order::Reconnect => return Ok(()),
                        Order::Deafen(duration) => {
                            line.deafened(duration).await;
                            return Ok(());
                        }
                    }
                }
            }
            if line.is_whole() {
                self.pause = RETRY_FIRST;
                drop(turn.take());
            }
        }
    }
}

// === impl Line ===

impl Line {
    fn open(mut wire: Wire, numbers: &[usize], plan: &Plan, tally: Arc<Tally>) -> Self {
        let hello = v1::CarrierHello { instance: plan.instance, version: "bench".to_owned(), moving: false };
        let hello = encoded(Up::Hello(hello));
        let streams: Vec<StreamId> = numbers.iter().map(|_| wire.open(wire::CARRY)).collect();
        streams.iter().for_each(|stream| wire.say(*stream, &hello));
        let mut line = Self {
            wire,
            names: numbers.iter().map(|number| node::name(*number)).collect(),
            bound: vec![false; streams.len()],
            bound_count: 0,
            streams,
            refused: VecDeque::new(),
            tally,
            step: plan.interval / SLICES as u32,
            slice: 0,
            next_slice: Instant::now(),
            sequence: 0,
        };
        (0..line.streams.len()).for_each(|place| line.bind(place));
        line
    }

    fn is_whole(&self) -> bool {
        self.bound_count == self.streams.len()
    }

    fn bind(&mut self, place: usize) {
        let node = self.names[place].clone();
        let bindings = vec![v1::Binding { handle: HANDLE, node, incarnation: 0, orders_revision: 0 }];
        self.wire.say(self.streams[place], &encoded(Up::Bind(v1::Bind { bindings })));
    }

    fn happened(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Message { stream, message } => self.told(stream, message),
            Event::Pong(_) => Ok(()),
            Event::Ended { stream } => bail!("the replica ended stream {stream}"),
        }
    }

    fn told(&mut self, stream: StreamId, message: Bytes) -> Result<()> {
        match v1::CarrierReply::decode(message)?.message {
            Some(Down::Bound(bound)) => bound.nodes.into_iter().for_each(|node| self.bound(stream, node)),
            Some(Down::Acknowledged(answer)) => {
                self.tally.answered.fetch_max(answer.sequence, Ordering::Relaxed);
            }
            Some(Down::Move(go)) => bail!("sent away: {}", go.why),
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
                self.tally.bound.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) => {
                self.bound_count -= 1;
                self.tally.bound.fetch_sub(1, Ordering::SeqCst);
            }
            (true, true) | (false, false) => {}
        }
        self.bound[place] = bound;
        if !bound {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
            self.tally.trouble(format!("{} was refused: {}", self.names[place], node.refused));
            self.refused.push_back((Instant::now() + REFUSED_PAUSE, place));
        }
    }

    fn beat(&mut self) {
        let message = beats(0);
        for place in (self.slice..self.streams.len()).step_by(SLICES) {
            self.say(place, &message);
        }
        self.turn();
        while let Some((_, place)) = self.refused.pop_front_if(|(at, _)| *at <= Instant::now()) {
            self.bind(place);
        }
    }

    fn turn(&mut self) {
        self.slice = (self.slice + 1) % SLICES;
        self.next_slice = (self.next_slice + self.step).max(Instant::now());
    }

    /// Without room there is nothing to be said: the replica does not read this stream.
    fn say(&mut self, place: usize, message: &[u8]) {
        let stream = self.streams[place];
        if self.bound[place] && self.wire.has_room(stream, message.len() + wire::PREFIX) {
            self.wire.say(stream, message);
            self.tally.said.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Once all is bound the first stream asks and asks, and takes no answer.
    fn choke(&mut self) {
        let Some(first) = self.streams.first().copied().filter(|_| self.is_whole()) else { return };
        self.wire.withhold(first);
        self.sequence += 1;
        let message = beats(self.sequence);
        self.say(0, &message);
        self.tally.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Whatever becomes of the connection meanwhile, nobody looks.
    async fn deafened(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut broken = false;
        while Instant::now() < until {
            self.sequence += 1;
            let message = beats(self.sequence);
            (0..self.streams.len()).for_each(|place| self.say(place, &message));
            if !broken {
                broken = matches!(timeout(self.step, self.wire.write()).await, Ok(Err(_)));
            }
            sleep_until(self.next_slice.min(until)).await;
            self.turn();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.tally.bound.fetch_sub(self.bound_count, Ordering::SeqCst);
    }
}

fn beats(acknowledge: u64) -> Vec<u8> {
    encoded(Up::Beats(v1::Beats { handles: vec![HANDLE], acknowledge }))
}

fn encoded(message: Up) -> Vec<u8> {
    v1::CarrierMessage { message: Some(message) }.encode_to_vec()
}
