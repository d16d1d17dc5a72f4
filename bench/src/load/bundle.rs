//! Many streams on one connection, each with one node: every beat is a message and a frame of its own.
//!
//! A round is one beat of every node of the connection, encoded once. One beat of each round, of another node every time,
//! asks for an answer, and two rounds are under way at most: so the load is as fast as the replicas take it in and never
//! floods them. A ping would be answered by whoever reads the connection, while the beats still wait for their streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::carrier_reply::Message as Down;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::latency::Latencies;
use crate::load::doors::Doors;
use crate::node;
use crate::wire::{self, Event, Round, StreamId, Wire};

/// The only node of a stream.
const HANDLE: u32 = 0;
const ROUNDS_AT_ONCE: usize = 2;
/// A replica may answer several beats of a stream at once, so there is one to be answered.
const ASKED_AT_ONCE: usize = 1;
const BIND_PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Connections that are set up at the same time.
const BEGINNING_AT_ONCE: usize = 16;

/// What the connections are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Rest,
    Beat {
        /// Every beat asks for an answer.
        acknowledged: bool,
    },
    End,
}

pub struct Bundles {
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    tasks: JoinSet<Result<()>>,
    pub connections: usize,
    pub nodes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    ready: AtomicUsize,
    resting: AtomicUsize,
    said: AtomicU64,
    failed: AtomicBool,
    rounds: Mutex<Vec<Duration>>,
}

struct Bundle {
    wire: Wire,
    streams: Vec<StreamId>,
    shared: Arc<Shared>,
    rounds: Vec<Duration>,
}

/// A round that is under way.
struct Underway {
    since: Instant,
    /// Answers that are still to come.
    owed: usize,
}

// === impl Bundles ===

impl Bundles {
    /// The nodes 0 to `nodes`, which exist already, over so many connections.
    pub fn start(doors: &Doors, nodes: usize, connections: usize, instance: u64) -> Self {
        let (phase, _) = watch::channel(Phase::Rest);
        let (shared, mut tasks) = (Arc::<Shared>::default(), JoinSet::new());
        let gate = Arc::new(tokio::sync::Semaphore::new(BEGINNING_AT_ONCE));
        for connection in 0..connections {
            let numbers: Vec<usize> = (connection..nodes).step_by(connections).collect();
            let (doors, phases, shared) = (doors.clone(), phase.subscribe(), Arc::clone(&shared));
            let gate = Arc::clone(&gate);
            tasks.spawn(async move {
                let turn = gate.acquire_owned().await?;
                let begun = Bundle::begin(&doors, connection, &numbers, instance, Arc::clone(&shared)).await;
                drop(turn);
                let run = match begun {
                    Ok(bundle) => bundle.run(phases).await,
                    Err(error) => Err(error),
                };
                if run.is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                run
            });
        }
        Self { shared, phase, tasks, connections, nodes }
    }

    pub async fn wait_ready(&mut self) -> Result<()> {
        let connections = self.connections;
        self.wait(move |shared| shared.ready.load(Ordering::Relaxed) == connections).await
    }

    /// Beats that were said so far.
    pub fn said(&self) -> u64 {
        self.shared.said.load(Ordering::Relaxed)
    }

    pub fn beat(&self, acknowledged: bool) {
        self.shared.resting.store(0, Ordering::Relaxed);
        self.phase.send_replace(Phase::Beat { acknowledged });
    }

    /// Returns when all that was said has been read.
    pub async fn rest(&mut self) -> Result<()> {
        self.phase.send_replace(Phase::Rest);
        let connections = self.connections;
        self.wait(move |shared| shared.resting.load(Ordering::Relaxed) == connections).await
    }

    /// How long each round took since this was last asked.
    pub fn take_rounds(&self) -> Latencies {
        let taken = self.shared.rounds.lock().map(|mut rounds| std::mem::take(&mut *rounds));
        taken.unwrap_or_default().into_iter().collect()
    }

    pub async fn end(mut self) -> Result<()> {
        self.phase.send_replace(Phase::End);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn wait(&mut self, is_so: impl Fn(&Shared) -> bool) -> Result<()> {
        let waiting = async {
            while !is_so(&self.shared) {
                if self.shared.failed.load(Ordering::Relaxed) {
                    while let Some(ended) = self.tasks.join_next().await {
                        ended??;
                    }
                    bail!("a connection ended by itself");
                }
                sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        timeout(BIND_PATIENCE, waiting).await?
    }
}

// === impl Bundle ===

impl Bundle {
    async fn begin(doors: &Doors, door: usize, numbers: &[usize], instance: u64, shared: Arc<Shared>) -> Result<Self> {
        let mut wire = Wire::connect(&doors.target(door)?).await?;
        let hello = encoded(Up::Hello(v1::CarrierHello { instance, version: "bench".to_owned(), moving: false }));
        let mut streams = Vec::with_capacity(numbers.len());
        for number in numbers {
            let stream = wire.open(wire::CARRY);
            let (handle, node) = (HANDLE, node::name(*number));
            let bindings = vec![v1::Binding { handle, node, incarnation: 0, orders_revision: 0 }];
            wire.say(stream, &hello);
            wire.say(stream, &encoded(Up::Bind(v1::Bind { bindings })));
            streams.push(stream);
        }
        let mut bundle = Self { wire, streams, shared, rounds: Vec::new() };
        timeout(BIND_PATIENCE, bundle.bound()).await??;
        bundle.shared.ready.fetch_add(1, Ordering::Relaxed);
        Ok(bundle)
    }

    async fn bound(&mut self) -> Result<()> {
        let mut missing = self.streams.len();
        while missing > 0 {
            if let Event::Message { message, .. } = self.next().await?
                && let Some(Down::Bound(bound)) = v1::CarrierReply::decode(message)?.message
            {
                let refused = bound.nodes.iter().find(|node| node.incarnation == 0);
                ensure!(refused.is_none(), "a node was not bound: {refused:?}");
                missing -= 1;
            }
        }
        Ok(())
    }

    async fn run(mut self, mut phases: watch::Receiver<Phase>) -> Result<()> {
        let quiet = encoded(Up::Beats(v1::Beats { handles: vec![HANDLE], acknowledge: 0 }));
        let asking = encoded(Up::Beats(v1::Beats { handles: vec![HANDLE], acknowledge: 1 }));
        let rounds = [(&quiet, &asking), (&asking, &asking)]
            .map(|(message, other)| Round::new(self.streams.clone(), message, other));
        loop {
            let phase = *phases.borrow_and_update();
            match phase {
                Phase::End => return Ok(()),
                Phase::Beat { acknowledged } => {
                    self.beat(&rounds[usize::from(acknowledged)], acknowledged, &mut phases).await?;
                    if let Ok(mut rounds) = self.shared.rounds.lock() {
                        rounds.append(&mut self.rounds);
                    }
                    self.shared.resting.fetch_add(1, Ordering::Relaxed);
                }
                Phase::Rest => tokio::select! {
                    event = self.next() => drop(event?),
                    changed = phases.changed() => changed?,
                },
            }
        }
    }

    /// Beats until the phase changes, and then waits until all of it was read.
    async fn beat(&mut self, round: &Round, acknowledged: bool, phases: &mut watch::Receiver<Phase>) -> Result<()> {
        let mut underway: VecDeque<Underway> = VecDeque::new();
        let mut number = 0;
        let at_once = if acknowledged { ASKED_AT_ONCE } else { ROUNDS_AT_ONCE };
        loop {
            let over = phases.has_changed()?;
            while !over && underway.len() < at_once && round.fits(&self.wire) {
                number += 1;
                self.wire.say_round(round, Some(number % round.len()));
                self.shared.said.fetch_add(round.len() as u64, Ordering::Relaxed);
                let owed = if acknowledged { round.len() } else { 1 };
                underway.push_back(Underway { since: Instant::now(), owed });
            }
            if over && underway.is_empty() {
                return Ok(());
            }
            match self.next().await? {
                Event::Pong(_) | Event::Ended { .. } => {}
                Event::Message { message, .. } => self.answered(message, &mut underway)?,
            }
            while underway.front().is_some_and(|round| round.owed == 0)
                && let Some(round) = underway.pop_front()
            {
                self.rounds.push(round.since.elapsed());
            }
        }
    }

    fn answered(&mut self, message: bytes::Bytes, underway: &mut VecDeque<Underway>) -> Result<()> {
        if let Some(Down::Acknowledged(_)) = v1::CarrierReply::decode(message)?.message
            && let Some(round) = underway.iter_mut().find(|round| round.owed > 0)
        {
            round.owed -= 1;
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Event> {
        match self.wire.next().await? {
            Event::Ended { stream } => bail!("the replica ended stream {stream}"),
            event @ (Event::Message { .. } | Event::Pong(_)) => Ok(event),
        }
    }
}

fn encoded(message: Up) -> Vec<u8> {
    v1::CarrierMessage { message: Some(message) }.encode_to_vec()
}
