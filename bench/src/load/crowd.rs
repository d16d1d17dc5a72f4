//! Many nodes on one stream, as an aggregator carries them: bound, registered where they are not, and beating.
//!
//! A crowd does what a real aggregator does and no more. It moves to another replica when its own is gone, posts every
//! status once in five minutes, and falls silent, wholly or in part, when it is told to.

mod members;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::carrier_reply::Message as Down;
use muster_proto::v1::server_message::Message as Told;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use self::members::{Members, Standing};
use crate::load::doors::Doors;
use crate::node;
use crate::wire::{self, Event, StreamId, Wire};

/// The beats of an interval are spread over so many parts of it.
const SLICES: usize = 20;
/// Nodes in one message: no more than a replica takes.
const BINDINGS_PER_MESSAGE: usize = 1_024;
const BINDINGS_AT_ONCE: usize = 4 * BINDINGS_PER_MESSAGE;
const HANDLES_PER_MESSAGE: usize = 4_096;
/// A replica works on no more of a stream's writes at once.
const WRITES_AT_ONCE: usize = 256;
/// What may wait to be written before more is said.
const BACKLOG_MAX: usize = 256 << 10;
/// How often an agent says how it is, even if nothing changed.
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// Until the replica says otherwise.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(7);
/// How long a refused node waits before it is bound again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
const ORDERS_MAX: usize = 16;

/// A running crowd. Dropping it closes the connection without a word.
pub struct Crowd {
    pub numbers: Range<usize>,
    pub tally: Arc<Tally>,
    orders: mpsc::Sender<Order>,
    _task: AbortOnDropHandle<()>,
}

/// What all crowds together have done.
#[derive(Debug, Default)]
pub struct Tally {
    pub bound: AtomicUsize,
    pub registered: AtomicUsize,
    pub refused: AtomicUsize,
    /// Connections that ended without being told to.
    pub lost: AtomicUsize,
    pub beats: AtomicU64,
    pub statuses: AtomicU64,
    last_refusal: std::sync::Mutex<Option<String>>,
}

enum Order {
    /// Answered with when each of them last beat.
    Silence(Vec<usize>, oneshot::Sender<Vec<(usize, Option<std::time::Instant>)>>),
    Speak(Vec<usize>),
    /// Lets go of all nodes and ends.
    Release(oneshot::Sender<()>),
}

struct Driver {
    doors: Doors,
    door: usize,
    instance: u64,
    members: Members,
    tally: Arc<Tally>,
    orders: mpsc::Receiver<Order>,
    interval: Duration,
    slice: usize,
    next_slice: Instant,
    /// The next whose status is due by the clock, and a fraction of one carried over.
    next_status: usize,
    status_debt: f64,
    statuses_wanted: VecDeque<u32>,
    writing: usize,
    sequence: u64,
    released: bool,
}

// === impl Crowd ===

impl Crowd {
    /// The nodes of these numbers, first at the `door`th door.
    pub fn start(doors: Doors, door: usize, numbers: Range<usize>, instance: u64, tally: Arc<Tally>) -> Self {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let driver = Driver {
            doors,
            door,
            instance,
            members: Members::new(numbers.clone()),
            tally: Arc::clone(&tally),
            orders: taken,
            interval: BEAT_INTERVAL,
            slice: 0,
            next_slice: Instant::now(),
            next_status: 0,
            status_debt: 0.0,
            statuses_wanted: VecDeque::new(),
            writing: 0,
            sequence: 0,
            released: false,
        };
        Self { numbers, tally, orders, _task: AbortOnDropHandle::new(tokio::spawn(driver.run())) }
    }

    /// These nodes, by number, beat no more; says when each last did.
    pub async fn silence(&self, numbers: Vec<usize>) -> Result<Vec<(usize, Option<std::time::Instant>)>> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::Silence(numbers, answer)).await?;
        Ok(answered.await?)
    }

    pub async fn speak(&self, numbers: Vec<usize>) -> Result<()> {
        self.order(Order::Speak(numbers)).await
    }

    /// Lets go of all nodes: nobody misses them, and another stream may have them.
    pub async fn release(self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::Release(answer)).await?;
        Ok(answered.await?)
    }

    async fn order(&self, order: Order) -> Result<()> {
        ensure!(self.orders.send(order).await.is_ok(), "a crowd has ended");
        Ok(())
    }
}

// === impl Tally ===

impl Tally {
    /// Why a node was last refused.
    pub fn last_refusal(&self) -> Option<String> {
        self.last_refusal.lock().ok()?.clone()
    }

    fn refuse(&self, why: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut last) = self.last_refusal.lock() {
            *last = Some(why);
        }
    }
}

// === impl Driver ===

impl Driver {
    async fn run(mut self) {
        let mut pause = RETRY_FIRST;
        while !self.released {
            match self.attend(&mut pause).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(%error, "a crowd lost its replica");
                    self.tally.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.detached();
            sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(RETRY_CAP);
        }
    }

    fn detached(&mut self) {
        self.tally.bound.fetch_sub(self.members.unbind_all(), Ordering::Relaxed);
        self.writing = 0;
        self.statuses_wanted.clear();
        self.door += 1;
    }

    /// One connection, until it ends.
    async fn attend(&mut self, pause: &mut Duration) -> Result<()> {
        let mut wire = Wire::connect(&self.doors.target(self.door)?).await?;
        let stream = wire.open(wire::CARRY);
        let hello = v1::CarrierHello { instance: self.instance, version: "bench".to_owned(), moving: false };
        say(&mut wire, stream, Up::Hello(hello));
        self.next_slice = Instant::now();
        while !self.released {
            let at = self.next_slice;
            tokio::select! {
                event = wire.next() => {
                    let welcomed = self.happened(event?)?;
                    if welcomed {
                        *pause = RETRY_FIRST;
                    }
                }
                () = sleep_until(at) => self.begin_slice(&mut wire, stream),
                Some(order) = self.orders.recv() => self.obey(order, &mut wire, stream).await?,
            }
            self.fill(&mut wire, stream);
        }
        Ok(())
    }

    /// Whether it was a welcome.
    fn happened(&mut self, event: Event) -> Result<bool> {
        match event {
            Event::Message { message, .. } => self.told(message),
            Event::Pong(_) => Ok(false),
            Event::Ended { .. } => bail!("the replica ended the stream"),
        }
    }

    fn told(&mut self, message: Bytes) -> Result<bool> {
        match v1::CarrierReply::decode(message)?.message {
            Some(Down::Welcome(welcome)) => {
                self.adopt(welcome.terms);
                self.members.bind_all();
                return Ok(true);
            }
            Some(Down::Terms(terms)) => self.adopt(Some(terms)),
            Some(Down::Bound(bound)) => bound.nodes.into_iter().for_each(|node| self.bound(node)),
            Some(Down::Carried(v1::Carried { handle, message: Some(message) })) => {
                self.carried(handle, message.message);
            }
            Some(Down::Move(go)) => bail!("sent away: {}", go.why),
            Some(Down::Carried(_) | Down::Acknowledged(_)) | None => {}
        }
        Ok(false)
    }

    fn adopt(&mut self, terms: Option<v1::Terms>) {
        if let Some(terms) = terms.filter(|terms| terms.beat_interval_ms > 0) {
            self.interval = Duration::from_millis(terms.beat_interval_ms.into());
        }
    }

    fn bound(&mut self, node: v1::BoundNode) {
        let handle = node.handle;
        if !node.refused.is_empty() {
            self.tally.refuse(node.refused);
            self.stand(handle, Standing::Refused);
        } else if node.registration_wanted {
            self.stand(handle, Standing::Unregistered);
        } else {
            self.members.incarnation(handle, node.incarnation);
            self.stand(handle, Standing::Bound);
            if node.status_wanted {
                self.status_wanted(handle);
            }
        }
    }

    fn status_wanted(&mut self, handle: u32) {
        if self.members.ask_status(handle) {
            self.statuses_wanted.push_back(handle);
        }
    }

    fn carried(&mut self, handle: u32, message: Option<Told>) {
        match message {
            Some(Told::Welcome(welcome)) => {
                self.members.incarnation(handle, welcome.incarnation);
                self.tally.registered.fetch_add(1, Ordering::Relaxed);
                self.stand(handle, Standing::Bound);
            }
            Some(Told::StatusWanted(_)) => self.status_wanted(handle),
            Some(Told::StatusTaken(taken)) => {
                self.writing = self.writing.saturating_sub(usize::from(self.members.posted(handle)));
                if !taken.refused.is_empty() {
                    self.tally.refuse(taken.refused);
                }
            }
            Some(Told::RegistrationWanted(_) | Told::Removed(_)) => self.stand(handle, Standing::Unregistered),
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

    /// The only place where the number of bound nodes and of writes under way changes with a node.
    fn stand(&mut self, handle: u32, standing: Standing) {
        let Some(before) = self.members.stand(handle, standing) else { return };
        if before == Standing::Registering {
            self.writing = self.writing.saturating_sub(1);
        }
        match (before == Standing::Bound, standing == Standing::Bound) {
            (false, true) => drop(self.tally.bound.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.tally.bound.fetch_sub(1, Ordering::Relaxed)),
            (true, true) | (false, false) => {}
        }
    }

    async fn obey(&mut self, order: Order, wire: &mut Wire, stream: StreamId) -> Result<()> {
        match order {
            Order::Silence(numbers, answer) => {
                let last = numbers.into_iter().map(|number| (number, self.members.silence(number)));
                let _ = answer.send(last.collect());
            }
            Order::Speak(numbers) => numbers.into_iter().for_each(|number| self.speak(number)),
            Order::Release(answer) => {
                self.release(wire, stream).await?;
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    fn speak(&mut self, number: usize) {
        if self.members.speak(number)
            && let Ok(handle) = u32::try_from(number - self.members.first())
        {
            self.statuses_wanted.push_back(handle);
        }
    }

    /// Returns once the replica has read it.
    async fn release(&mut self, wire: &mut Wire, stream: StreamId) -> Result<()> {
        let handles: Vec<u32> = self.members.all_bound().collect();
        for part in handles.chunks(HANDLES_PER_MESSAGE) {
            say(wire, stream, Up::Release(v1::Release { handles: part.to_vec() }));
        }
        wire.ping(1);
        while wire.next().await? != Event::Pong(1) {}
        self.tally.bound.fetch_sub(self.members.unbind_all(), Ordering::Relaxed);
        self.released = true;
        Ok(())
    }

    fn begin_slice(&mut self, wire: &mut Wire, stream: StreamId) {
        let handles = self.members.beat(self.slice, SLICES);
        for part in handles.chunks(HANDLES_PER_MESSAGE) {
            say(wire, stream, Up::Beats(v1::Beats { handles: part.to_vec(), acknowledge: 0 }));
        }
        self.tally.beats.fetch_add(handles.len() as u64, Ordering::Relaxed);
        self.members.forgive(self.slice, SLICES, REFUSED_PAUSE);
        let step = self.interval / SLICES as u32;
        self.status_debt += self.members.count() as f64 * step.as_secs_f64() / STATUS_EVERY.as_secs_f64();
        self.slice = (self.slice + 1) % SLICES;
        self.next_slice = (self.next_slice + step).max(Instant::now());
    }

    /// Says as much as there is room for, what matters most first.
    fn fill(&mut self, wire: &mut Wire, stream: StreamId) {
        while wire.backlog() < BACKLOG_MAX && wire.has_room(stream, BACKLOG_MAX / 2) {
            let said =
                self.say_bindings(wire, stream) || self.say_registration(wire, stream) || self.say_status(wire, stream);
            if !said {
                return;
            }
        }
    }

    fn say_bindings(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        let bindings = self.members.take_unbound(BINDINGS_PER_MESSAGE, BINDINGS_AT_ONCE);
        if bindings.is_empty() {
            return false;
        }
        say(wire, stream, Up::Bind(v1::Bind { bindings }));
        true
    }

    fn say_registration(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        if self.writing >= WRITES_AT_ONCE {
            return false;
        }
        let Some((handle, number)) = self.members.take_unregistered() else { return false };
        self.writing += 1;
        let register = v1::Register { node: node::manifest(number).into(), running: Some(v1::Running::default()) };
        say(wire, stream, Up::Register(v1::CarriedRegister { handle, register: Some(register) }));
        true
    }

    fn say_status(&mut self, wire: &mut Wire, stream: StreamId) -> bool {
        if self.writing >= WRITES_AT_ONCE {
            return false;
        }
        let Some((handle, number)) = self.next_status() else { return false };
        self.writing += 1;
        self.sequence += 1;
        let (sequence, running) = (self.sequence, Some(v1::Running::default()));
        let report = v1::StatusReport { sequence, status: node::status(number).into(), running };
        say(wire, stream, Up::Status(v1::CarriedStatus { handle, report: Some(report) }));
        self.tally.statuses.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Those that were asked for first, then those whose time has come.
    fn next_status(&mut self) -> Option<(u32, usize)> {
        while let Some(handle) = self.statuses_wanted.pop_front() {
            if let Some(number) = self.members.begin_post(handle) {
                return Some((handle, number));
            }
        }
        while self.status_debt >= 1.0 {
            self.status_debt -= 1.0;
            let handle = u32::try_from(self.next_status).ok()?;
            self.next_status = (self.next_status + 1) % self.members.count();
            if let Some(number) = self.members.begin_post(handle) {
                return Some((handle, number));
            }
        }
        None
    }
}

fn say(wire: &mut Wire, stream: StreamId, message: Up) {
    wire.say(stream, &v1::CarrierMessage { message: Some(message) }.encode_to_vec());
}
