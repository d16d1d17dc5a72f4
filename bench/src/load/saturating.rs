//! Saturating streams: one node each, many on a connection; every beat is a message and a frame of its own.
//!
//! A round is one beat of every node of the connection, encoded once. One beat of each round, of another node every
//! time, asks for an answer, and at most two rounds are in flight. So the load is as fast as the replicas read it and
//! never floods them. A ping would not do: the replica answers it as soon as it reads the connection, while the beats
//! still wait for their streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muster_proto::v1::aggregator_reply::Message as Down;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::carry::{self, ONLY_HANDLE};
use super::doors::AgentDoors;
use super::wire::{self, BeatRound, StreamId, Wire};
use crate::measure::latency::Latencies;

const ROUNDS_AT_ONCE: usize = 2;
/// A replica may answer several beats of a stream at once, so only one of them may wait for its answer.
const ASKED_AT_ONCE: usize = 1;
const BIND_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Connections that are set up at the same time.
const CONNECTING_AT_ONCE: usize = 16;

/// Instructions to the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    Rest,
    Beat {
        /// Every beat asks for an answer.
        acknowledged: bool,
    },
    End,
}

pub(crate) struct SaturatingStreams {
    state: Arc<StreamsState>,
    instruction: watch::Sender<Instruction>,
    tasks: JoinSet<Result<()>>,
    connections: usize,
}

#[derive(Debug, Default)]
struct StreamsState {
    /// Connections whose nodes are all bound.
    ready: AtomicUsize,
    /// Connections that have stopped beating.
    resting: AtomicUsize,
    /// Beats sent.
    sent: AtomicU64,
    failed: AtomicBool,
    rounds: Mutex<Vec<Duration>>,
}

/// One connection with its streams.
struct Connection {
    wire: Wire,
    streams: Vec<StreamId>,
    state: Arc<StreamsState>,
    rounds: Vec<Duration>,
}

/// A round in flight.
struct Underway {
    since: Instant,
    /// Answers that are still to come.
    awaited: usize,
}

// === impl SaturatingStreams ===

impl SaturatingStreams {
    /// The nodes 0 to `nodes`, which exist already, over so many connections.
    pub(crate) fn start(doors: &AgentDoors, nodes: usize, connections: usize, instance: u64) -> Self {
        let (instruction, _) = watch::channel(Instruction::Rest);
        let (state, mut tasks) = (Arc::<StreamsState>::default(), JoinSet::new());
        let connecting = Arc::new(Semaphore::new(CONNECTING_AT_ONCE));
        for connection in 0..connections {
            let numbers: Vec<usize> = (connection..nodes).step_by(connections).collect();
            let (doors, instructions, state) = (doors.clone(), instruction.subscribe(), Arc::clone(&state));
            let connecting = Arc::clone(&connecting);
            tasks.spawn(async move {
                let turn = connecting.acquire_owned().await?;
                let begun = Connection::begin(&doors, connection, &numbers, instance, Arc::clone(&state)).await;
                drop(turn);
                let run = match begun {
                    Ok(connection) => connection.run(instructions).await,
                    Err(error) => Err(error),
                };
                if run.is_err() {
                    state.failed.store(true, Ordering::Relaxed);
                }
                run
            });
        }
        Self { state, instruction, tasks, connections }
    }

    pub(crate) async fn wait_ready(&mut self) -> Result<()> {
        let connections = self.connections;
        self.wait(move |state| state.ready.load(Ordering::Relaxed) == connections).await
    }

    /// Beats sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn beat(&self, acknowledged: bool) {
        self.state.resting.store(0, Ordering::Relaxed);
        self.instruction.send_replace(Instruction::Beat { acknowledged });
    }

    /// Returns when the replicas have read everything that was sent.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        self.instruction.send_replace(Instruction::Rest);
        let connections = self.connections;
        self.wait(move |state| state.resting.load(Ordering::Relaxed) == connections).await
    }

    /// How long each round took, since the last call.
    pub(crate) fn take_rounds(&self) -> Latencies {
        let taken = self.state.rounds.lock().map(|mut rounds| std::mem::take(&mut *rounds));
        taken.unwrap_or_default().into_iter().collect()
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        self.instruction.send_replace(Instruction::End);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn wait(&mut self, is_so: impl Fn(&StreamsState) -> bool) -> Result<()> {
        let waiting = async {
            while !is_so(&self.state) {
                if self.state.failed.load(Ordering::Relaxed) {
                    while let Some(ended) = self.tasks.join_next().await {
                        ended??;
                    }
                    bail!("a connection ended by itself");
                }
                sleep(POLL_EVERY).await;
            }
            Ok(())
        };
        timeout(BIND_TIMEOUT, waiting).await?
    }
}

// === impl Connection ===

impl Connection {
    async fn begin(
        doors: &AgentDoors,
        door: usize,
        numbers: &[usize],
        instance: u64,
        state: Arc<StreamsState>,
    ) -> Result<Self> {
        let mut wire = Wire::connect(&doors.target(door)?).await?;
        let hello = carry::hello(instance);
        let mut streams = Vec::with_capacity(numbers.len());
        for number in numbers {
            let stream = wire.open(wire::CARRY);
            wire.send(stream, &hello);
            wire.send(stream, &carry::bind(vec![carry::binding(ONLY_HANDLE, *number)]));
            streams.push(stream);
        }
        timeout(BIND_TIMEOUT, carry::wait_bound(&mut wire, streams.len())).await??;
        state.ready.fetch_add(1, Ordering::Relaxed);
        Ok(Self { wire, streams, state, rounds: Vec::new() })
    }

    async fn run(mut self, mut instructions: watch::Receiver<Instruction>) -> Result<()> {
        let quiet = carry::beats(vec![ONLY_HANDLE], 0);
        let asking = carry::beats(vec![ONLY_HANDLE], 1);
        let rounds = [(&quiet, &asking), (&asking, &asking)]
            .map(|(message, other)| BeatRound::new(self.streams.clone(), message, other));
        loop {
            let instruction = *instructions.borrow_and_update();
            match instruction {
                Instruction::End => return Ok(()),
                Instruction::Beat { acknowledged } => {
                    self.beat(&rounds[usize::from(acknowledged)], acknowledged, &mut instructions).await?;
                    if let Ok(mut rounds) = self.state.rounds.lock() {
                        rounds.append(&mut self.rounds);
                    }
                    self.state.resting.fetch_add(1, Ordering::Relaxed);
                }
                Instruction::Rest => tokio::select! {
                    event = self.wire.next() => drop(carry::message(event?)?),
                    changed = instructions.changed() => changed?,
                },
            }
        }
    }

    /// Beats until the instruction changes, and then waits until the replica has read all of it.
    async fn beat(
        &mut self,
        round: &BeatRound,
        acknowledged: bool,
        instructions: &mut watch::Receiver<Instruction>,
    ) -> Result<()> {
        let mut underway: VecDeque<Underway> = VecDeque::new();
        let mut number = 0;
        let at_once = if acknowledged { ASKED_AT_ONCE } else { ROUNDS_AT_ONCE };
        loop {
            let over = instructions.has_changed()?;
            while !over && underway.len() < at_once && round.fits(&self.wire) {
                number += 1;
                self.wire.send_round(round, Some(number % round.len()));
                self.state.sent.fetch_add(round.len() as u64, Ordering::Relaxed);
                let awaited = if acknowledged { round.len() } else { 1 };
                underway.push_back(Underway { since: Instant::now(), awaited });
            }
            if over && underway.is_empty() {
                return Ok(());
            }
            if let Some((_, message)) = carry::message(self.wire.next().await?)?
                && let Some(Down::Acknowledged(_)) = carry::decoded(message)?
                && let Some(round) = underway.iter_mut().find(|round| round.awaited > 0)
            {
                round.awaited -= 1;
            }
            while underway.front().is_some_and(|round| round.awaited == 0)
                && let Some(round) = underway.pop_front()
            {
                self.rounds.push(round.since.elapsed());
            }
        }
    }
}
