//! Simulated agents, each with a TLS connection of its own: a session, a beat now and then, and another replica when
//! the agent's own is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use prost::Message as _;
use rustls::ClientConfig;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::backoff::Backoff;
use super::carry::{self, VERSION};
use super::doors::AgentDoors;
use super::last_error::LastError;
use super::node;
use super::wire::{self, StreamId, Wire, WireEvent};
use crate::harness::wait;
use crate::measure::latency::Latencies;

/// The longest pause between two attempts, however long the replica allows.
pub(crate) const RETRY_CAP: Duration = Duration::from_secs(7);
/// Without any progress for so long, the wait ends with an error.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Agents that connect at the same time, until [`AgentPool::allow_rush`].
const CONNECTING_AT_ONCE: usize = 64;
/// One beat in so many asks for an acknowledgement, by which latency is measured.
const ASK_EVERY: u64 = 100;

/// Instructions to the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    Rest,
    /// Each agent beats once in this time.
    Beat(Duration),
}

/// Agents of many nodes. They end when it is dropped.
pub(crate) struct AgentPool {
    instruction: watch::Sender<Instruction>,
    state: Arc<PoolState>,
    pub(crate) count: usize,
    _tasks: JoinSet<()>,
}

struct PoolState {
    doors: AgentDoors,
    instance: u64,
    connecting: Semaphore,
    /// Attached agents, by door.
    attached: Vec<AtomicUsize>,
    attempts: AtomicUsize,
    sent: AtomicU64,
    lost: AtomicUsize,
    latencies: std::sync::Mutex<Vec<Duration>>,
    last_error: LastError,
}

struct Agent {
    pool: Arc<PoolState>,
    number: usize,
    tls: Arc<ClientConfig>,
    instructions: watch::Receiver<Instruction>,
    sequence: u64,
    /// The beat that asked for an acknowledgement, and when.
    asked: Option<(u64, Instant)>,
    backoff: Backoff,
    /// The part of its interval at which it beats.
    share: f64,
}

// === impl AgentPool ===

impl AgentPool {
    /// Starts agents of the nodes 0 to `count`, which exist already, spread over all replicas.
    pub(crate) fn start(doors: &AgentDoors, count: usize, instance: u64) -> Result<Self> {
        let (instruction, instructions) = watch::channel(Instruction::Rest);
        let state = Arc::new(PoolState {
            doors: doors.clone(),
            instance,
            connecting: Semaphore::new(CONNECTING_AT_ONCE),
            attached: std::iter::repeat_with(AtomicUsize::default).take(doors.count()).collect(),
            attempts: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicUsize::new(0),
            latencies: std::sync::Mutex::default(),
            last_error: LastError::default(),
        });
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let agent = Agent {
                pool: Arc::clone(&state),
                number,
                tls: doors.identity(&node::name(number))?,
                instructions: instructions.clone(),
                sequence: 0,
                asked: None,
                backoff: Backoff::new(RETRY_CAP),
                share: rand::random(),
            };
            tasks.spawn(agent.run());
        }
        Ok(Self { instruction, state, count, _tasks: tasks })
    }

    pub(crate) fn attached(&self) -> usize {
        (0..self.state.attached.len()).map(|door| self.attached_at(door)).sum()
    }

    pub(crate) fn attached_at(&self, door: usize) -> usize {
        self.state.attached_at(door).load(Ordering::SeqCst)
    }

    /// From now on any number of agents may connect at the same time.
    pub(crate) fn allow_rush(&self) {
        self.state.connecting.add_permits(self.count);
    }

    /// Connections that were begun, also in vain.
    pub(crate) fn attempts(&self) -> usize {
        self.state.attempts.load(Ordering::Relaxed)
    }

    /// Connections that ended after the replica had welcomed the agent.
    pub(crate) fn lost(&self) -> usize {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Beats sent so far. A status counts as a beat.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Latencies of acknowledgements since the last call.
    pub(crate) fn take_latencies(&self) -> Latencies {
        let taken = self.state.latencies.lock().map(|mut kept| std::mem::take(&mut *kept));
        taken.unwrap_or_default().into_iter().collect()
    }

    pub(crate) async fn wait_attached(&self) -> Result<()> {
        let why = || format!("the last error: {}", self.state.last_error.text());
        wait::for_count("agents are attached", self.count, STUCK_AFTER, || self.attached(), why).await
    }

    /// All agents together beat so often.
    pub(crate) fn beat(&self, per_second: f64) {
        let interval = Duration::from_secs_f64(self.count as f64 / per_second);
        self.instruction.send_replace(Instruction::Beat(interval));
    }

    pub(crate) fn rest(&self) {
        self.instruction.send_replace(Instruction::Rest);
    }
}

// === impl PoolState ===

impl PoolState {
    fn attached_at(&self, door: usize) -> &AtomicUsize {
        &self.attached[door % self.attached.len()]
    }
}

// === impl Agent ===

impl Agent {
    async fn run(mut self) {
        let mut door = self.number;
        loop {
            let mut welcomed = false;
            let ended = self.attend(door, &mut welcomed).await;
            if welcomed {
                self.pool.attached_at(door).fetch_sub(1, Ordering::SeqCst);
                self.pool.lost.fetch_add(1, Ordering::Relaxed);
                self.backoff.reset();
            }
            if let Err(error) = ended {
                self.pool.last_error.set(format!("{error:#}"));
            }
            self.backoff.pause().await;
            door += step_to_another(self.pool.doors.count(), rand::random::<u32>() as usize);
        }
    }

    /// One connection until it ends.
    async fn attend(&mut self, door: usize, welcomed: &mut bool) -> Result<()> {
        let (mut wire, stream) = self.begin(door).await?;
        *welcomed = true;
        self.pool.attached_at(door).fetch_add(1, Ordering::SeqCst);
        let mut next = tokio::time::Instant::now();
        loop {
            let instruction = *self.instructions.borrow_and_update();
            if let Instruction::Beat(every) = instruction
                && next < tokio::time::Instant::now()
            {
                next = tokio::time::Instant::now() + every.mul_f64(self.share);
                self.share = 1.0;
            }
            let beats = matches!(instruction, Instruction::Beat(_));
            tokio::select! {
                event = wire.next() => self.handle(event?, &mut wire, stream)?,
                changed = self.instructions.changed() => changed.context("the load has ended")?,
                () = sleep_until(next), if beats => self.beat(&mut wire, stream),
            }
        }
    }

    /// Connects, and returns once the replica has welcomed the agent.
    async fn begin(&mut self, door: usize) -> Result<(Wire, StreamId)> {
        let pool = Arc::clone(&self.pool);
        let _turn = pool.connecting.acquire().await?;
        pool.attempts.fetch_add(1, Ordering::Relaxed);
        let target = pool.doors.target_with(door, Arc::clone(&self.tls))?;
        let mut wire = Wire::connect(&target).await?;
        let stream = wire.open(wire::SESSION);
        let (node, instance) = (node::name(self.number), pool.instance);
        let hello = v1::Hello { node, instance, version: VERSION.to_owned(), ..v1::Hello::default() };
        wire.send(stream, &encoded(Up::Hello(hello)));
        loop {
            match received(wire.next().await?)? {
                Some(Down::Welcome(welcome)) => {
                    if let Some(cap) = welcome.terms.map(|terms| terms.backoff_cap_ms).filter(|cap| *cap > 0) {
                        self.backoff.cap = RETRY_CAP.min(Duration::from_millis(cap.into()));
                    }
                    if welcome.status_wanted {
                        self.post_status(&mut wire, stream);
                    }
                    return Ok((wire, stream));
                }
                Some(Down::RegistrationWanted(wanted)) => bail!("the node is not registered: {}", wanted.why),
                Some(_) | None => {}
            }
        }
    }

    fn handle(&mut self, event: WireEvent, wire: &mut Wire, stream: StreamId) -> Result<()> {
        match received(event)? {
            Some(Down::Acknowledged(acknowledged)) => self.acknowledged(acknowledged.sequence),
            Some(Down::StatusWanted(_)) => self.post_status(wire, stream),
            Some(Down::Move(go)) => bail!("the replica sent the agent away: {}", go.why),
            Some(_) | None => {}
        }
        Ok(())
    }

    fn beat(&mut self, wire: &mut Wire, stream: StreamId) {
        self.sequence += 1;
        let acknowledge = self.asked.is_none() && (self.sequence + self.number as u64).is_multiple_of(ASK_EVERY);
        if acknowledge {
            self.asked = Some((self.sequence, Instant::now()));
        }
        wire.send(stream, &encoded(Up::Beat(v1::Beat { sequence: self.sequence, acknowledge })));
        self.pool.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn acknowledged(&mut self, sequence: u64) {
        if let Some((asked, since)) = self.asked
            && asked == sequence
            && let Ok(mut latencies) = self.pool.latencies.lock()
        {
            latencies.push(since.elapsed());
            self.asked = None;
        }
    }

    fn post_status(&mut self, wire: &mut Wire, stream: StreamId) {
        self.sequence += 1;
        let (sequence, running) = (self.sequence, Some(v1::Running::default()));
        let report = v1::StatusReport { sequence, status: node::status(self.number).into(), running };
        wire.send(stream, &encoded(Up::Status(report)));
        self.pool.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many doors further on to try next: any other one, so that the agents of one replica spread over all the rest.
fn step_to_another(doors: usize, dice: usize) -> usize {
    match doors {
        0 | 1 => 1,
        doors => 1 + dice % (doors - 1),
    }
}

fn received(event: WireEvent) -> Result<Option<Down>> {
    match carry::message(event)? {
        Some((_, message)) => Ok(v1::ServerMessage::decode(message)?.message),
        None => Ok(None),
    }
}

fn encoded(message: Up) -> Vec<u8> {
    v1::AgentMessage { message: Some(message) }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reconnects_to_any_other_replica() {
        let reached: std::collections::BTreeSet<usize> = (0..10).map(|dice| step_to_another(3, dice)).collect();
        assert_eq!(reached, [1, 2].into());
        assert_eq!(step_to_another(1, 7), 1);
    }
}
