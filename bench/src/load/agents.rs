//! Nodes with a TLS connection each, as agents have them: a session, a beat now and then, and back to another replica
//! when theirs is gone.

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
use tokio::time::{sleep, sleep_until};

use crate::latency::Latencies;
use crate::load::doors::Doors;
use crate::node;
use crate::progress;
use crate::wire::{self, Event, StreamId, Wire};

const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest pause between two attempts, however long the replica allows.
pub const RETRY_CAP: Duration = Duration::from_secs(7);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const SPEAK_EVERY: Duration = Duration::from_secs(5);
/// After so long without any progress nothing more is waited for.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// At the first start, until [`Agents::rush`].
const CONNECTING_AT_ONCE: usize = 64;
/// One beat in so many asks for an answer, by which latency is measured.
const ASK_EVERY: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rest,
    /// Each agent once in such a time.
    Beat(Duration),
}

pub struct Agents {
    phase: watch::Sender<Phase>,
    shared: Arc<Shared>,
    pub count: usize,
    _tasks: JoinSet<()>,
}

struct Shared {
    doors: Doors,
    instance: u64,
    gate: Semaphore,
    /// By door.
    attached: Vec<AtomicUsize>,
    attempts: AtomicUsize,
    said: AtomicU64,
    lost: AtomicUsize,
    latencies: std::sync::Mutex<Vec<Duration>>,
    last_error: std::sync::Mutex<Option<String>>,
}

struct Agent {
    shared: Arc<Shared>,
    number: usize,
    tls: Arc<ClientConfig>,
    phases: watch::Receiver<Phase>,
    sequence: u64,
    asked: Option<(u64, Instant)>,
    /// The longest pause between two attempts.
    pause_cap: Duration,
    /// Where in its interval it beats.
    share: f64,
}

// === impl Agents ===

impl Agents {
    /// The nodes 0 to `count`, which exist already, spread over all replicas.
    pub fn start(doors: &Doors, count: usize, instance: u64) -> Result<Self> {
        let (phase, phases) = watch::channel(Phase::Rest);
        let shared = Arc::new(Shared {
            doors: doors.clone(),
            instance,
            gate: Semaphore::new(CONNECTING_AT_ONCE),
            attached: std::iter::repeat_with(AtomicUsize::default).take(doors.count()).collect(),
            attempts: AtomicUsize::new(0),
            said: AtomicU64::new(0),
            lost: AtomicUsize::new(0),
            latencies: std::sync::Mutex::default(),
            last_error: std::sync::Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let tls = doors.identity(&node::name(number))?;
            let agent = Agent {
                shared: Arc::clone(&shared),
                number,
                tls,
                phases: phases.clone(),
                sequence: 0,
                asked: None,
                pause_cap: RETRY_CAP,
                share: rand::random(),
            };
            tasks.spawn(agent.run());
        }
        Ok(Self { phase, shared, count, _tasks: tasks })
    }

    pub fn attached(&self) -> usize {
        (0..self.shared.attached.len()).map(|door| self.attached_at(door)).sum()
    }

    pub fn attached_at(&self, door: usize) -> usize {
        self.shared.attached[door % self.shared.attached.len()].load(Ordering::SeqCst)
    }

    /// From now on nobody waits for others to be connected first.
    pub fn rush(&self) {
        self.shared.gate.add_permits(self.count);
    }

    /// Connections that were begun, also in vain.
    pub fn attempts(&self) -> usize {
        self.shared.attempts.load(Ordering::Relaxed)
    }

    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::Relaxed)
    }

    pub fn said(&self) -> u64 {
        self.shared.said.load(Ordering::Relaxed)
    }

    pub fn take_latencies(&self) -> Latencies {
        let taken = self.shared.latencies.lock().map(|mut kept| std::mem::take(&mut *kept));
        taken.unwrap_or_default().into_iter().collect()
    }

    pub async fn wait_attached(&self, wanted: usize) -> Result<()> {
        let (mut seen, mut since, mut spoken) = (0, Instant::now(), Instant::now());
        loop {
            let attached = self.attached();
            if attached >= wanted {
                return Ok(());
            }
            if attached != seen {
                (seen, since) = (attached, Instant::now());
            } else if since.elapsed() > STUCK_AFTER {
                let error = self.shared.last_error.lock().ok().and_then(|error| error.clone());
                bail!("{attached} of {wanted} agents are attached and no more come; the last error: {error:?}");
            }
            if spoken.elapsed() > SPEAK_EVERY {
                progress::say(format_args!("{attached} of {wanted} agents are attached"));
                spoken = Instant::now();
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// So many beats per second of all together.
    pub fn beat(&self, per_second: f64) {
        self.phase.send_replace(Phase::Beat(Duration::from_secs_f64(self.count as f64 / per_second)));
    }

    pub fn rest(&self) {
        self.phase.send_replace(Phase::Rest);
    }
}

// === impl Shared ===

impl Shared {
    fn attached_at(&self, door: usize) -> &AtomicUsize {
        &self.attached[door % self.attached.len()]
    }
}

// === impl Agent ===

impl Agent {
    async fn run(mut self) {
        let (mut door, mut pause) = (self.number, RETRY_FIRST);
        loop {
            let mut welcomed = false;
            let ended = self.attend(door, &mut welcomed).await;
            if welcomed {
                self.shared.attached_at(door).fetch_sub(1, Ordering::SeqCst);
                self.shared.lost.fetch_add(1, Ordering::Relaxed);
                pause = RETRY_FIRST;
            }
            if let (Err(error), Ok(mut last)) = (ended, self.shared.last_error.lock()) {
                *last = Some(format!("{error:#}"));
            }
            sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(self.pause_cap);
            door += another(self.shared.doors.count(), rand::random::<u32>() as usize);
        }
    }

    /// One connection until it ends.
    async fn attend(&mut self, door: usize, welcomed: &mut bool) -> Result<()> {
        let (mut wire, stream) = self.begin(door).await?;
        *welcomed = true;
        self.shared.attached_at(door).fetch_add(1, Ordering::SeqCst);
        let mut next = tokio::time::Instant::now();
        loop {
            let phase = *self.phases.borrow_and_update();
            if let Phase::Beat(every) = phase
                && next < tokio::time::Instant::now()
            {
                next = tokio::time::Instant::now() + every.mul_f64(self.share);
                self.share = 1.0;
            }
            let beats = matches!(phase, Phase::Beat(_));
            tokio::select! {
                event = wire.next() => self.happened(event?, &mut wire, stream)?,
                changed = self.phases.changed() => changed.context("the load has ended")?,
                () = sleep_until(next), if beats => self.beat(&mut wire, stream),
            }
        }
    }

    async fn begin(&mut self, door: usize) -> Result<(Wire, StreamId)> {
        let shared = Arc::clone(&self.shared);
        let _turn = shared.gate.acquire().await?;
        shared.attempts.fetch_add(1, Ordering::Relaxed);
        let target = shared.doors.target_with(door, Arc::clone(&self.tls))?;
        let mut wire = Wire::connect(&target).await?;
        let stream = wire.open(wire::SESSION);
        let (node, instance) = (node::name(self.number), shared.instance);
        let hello = v1::Hello { node, instance, version: "bench".to_owned(), ..v1::Hello::default() };
        wire.say(stream, &encoded(Up::Hello(hello)));
        loop {
            let told = match wire.next().await? {
                Event::Message { message, .. } => v1::ServerMessage::decode(message)?.message,
                Event::Pong(_) => None,
                Event::Ended { .. } => bail!("the replica ended the stream"),
            };
            match told {
                Some(Down::Welcome(welcome)) => {
                    if let Some(cap) = welcome.terms.map(|terms| terms.backoff_cap_ms).filter(|cap| *cap > 0) {
                        self.pause_cap = RETRY_CAP.min(Duration::from_millis(cap.into()));
                    }
                    if welcome.status_wanted {
                        self.post(&mut wire, stream);
                    }
                    return Ok((wire, stream));
                }
                Some(Down::RegistrationWanted(wanted)) => bail!("the node is not registered: {}", wanted.why),
                Some(_) | None => {}
            }
        }
    }

    fn happened(&mut self, event: Event, wire: &mut Wire, stream: StreamId) -> Result<()> {
        let message = match event {
            Event::Message { message, .. } => message,
            Event::Pong(_) => return Ok(()),
            Event::Ended { .. } => bail!("the replica ended the stream"),
        };
        match v1::ServerMessage::decode(message)?.message {
            Some(Down::Acknowledged(acknowledged)) => self.acknowledged(acknowledged.sequence),
            Some(Down::StatusWanted(_)) => self.post(wire, stream),
            Some(Down::Move(go)) => bail!("sent away: {}", go.why),
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
        wire.say(stream, &encoded(Up::Beat(v1::Beat { sequence: self.sequence, acknowledge })));
        self.shared.said.fetch_add(1, Ordering::Relaxed);
    }

    fn acknowledged(&mut self, sequence: u64) {
        if let Some((asked, since)) = self.asked
            && asked == sequence
            && let Ok(mut latencies) = self.shared.latencies.lock()
        {
            latencies.push(since.elapsed());
            self.asked = None;
        }
    }

    fn post(&mut self, wire: &mut Wire, stream: StreamId) {
        self.sequence += 1;
        let (sequence, running) = (self.sequence, Some(v1::Running::default()));
        let report = v1::StatusReport { sequence, status: node::status(self.number).into(), running };
        wire.say(stream, &encoded(Up::Status(report)));
        self.shared.said.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many doors further on to try next: any other one, so that those of one replica spread over all the rest.
fn another(doors: usize, dice: usize) -> usize {
    match doors {
        0 | 1 => 1,
        doors => 1 + dice % (doors - 1),
    }
}

fn encoded(message: Up) -> Vec<u8> {
    v1::AgentMessage { message: Some(message) }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_door_is_another_and_any_other() {
        let reached: std::collections::BTreeSet<usize> = (0..10).map(|dice| another(3, dice)).collect();
        assert_eq!(reached, [1, 2].into());
        assert_eq!(another(1, 7), 1);
    }
}
