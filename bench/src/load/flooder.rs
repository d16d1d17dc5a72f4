//! An aggregator that has few nodes and says as much about them as the wire takes: beats by the thousand, bindings over
//! and over, and a status that is another each time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use muster_proto::v1;
use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::carrier_reply::Message as Down;
use prost::Message as _;
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::load::doors::Doors;
use crate::node;
use crate::wire::{self, Event, StreamId, Wire};

/// In one message.
const HANDLES: usize = 16 << 10;
/// Messages of beats between two of bindings and statuses.
const BEATS_PER_ROUND: usize = 8;
/// What may wait to be written before more is said.
const BACKLOG_MAX: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it beats while it does not flood.
const IDLE_EVERY: Duration = Duration::from_secs(1);
/// What is another in each status.
const KERNEL: &str = "6.1.0-31-cloud-amd64";

/// Ends when it is dropped.
pub struct Flooder {
    pub tally: Arc<Tally>,
    task: AbortOnDropHandle<Result<()>>,
}

#[derive(Debug, Default)]
pub struct Tally {
    /// Beats and statuses, each of which is a beat too.
    pub said: AtomicU64,
    pub bindings: AtomicU64,
    pub statuses: AtomicU64,
    /// Statuses that were taken or refused.
    pub answered: AtomicU64,
    pub refused: AtomicUsize,
    flooding: AtomicBool,
}

struct Driver {
    wire: Wire,
    stream: StreamId,
    nodes: Vec<usize>,
    tally: Arc<Tally>,
    beats: Vec<u8>,
    bind: Vec<u8>,
    round: u64,
}

// === impl Flooder ===

impl Flooder {
    /// With these nodes, which exist already; it returns once all are bound, and beats as others do until it is told
    /// to flood.
    pub async fn start(doors: &Doors, door: usize, numbers: Range<usize>, instance: u64) -> Result<Self> {
        let tally = Arc::<Tally>::default();
        let mut driver = Driver::open(doors, door, numbers, instance, Arc::clone(&tally)).await?;
        timeout(PATIENCE, driver.bound()).await.context("the flooding aggregator's nodes were not bound")??;
        Ok(Self { tally, task: AbortOnDropHandle::new(tokio::spawn(driver.run())) })
    }

    pub fn flood(&self, flooding: bool) {
        self.tally.flooding.store(flooding, Ordering::Relaxed);
    }

    /// Whether its connection has ended, which nobody told it to.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

// === impl Driver ===

impl Driver {
    async fn open(doors: &Doors, door: usize, numbers: Range<usize>, instance: u64, tally: Arc<Tally>) -> Result<Self> {
        let mut wire = Wire::connect(&doors.target(door)?).await?;
        let stream = wire.open(wire::CARRY);
        let hello = v1::CarrierHello { instance, version: "bench".to_owned(), moving: false };
        wire.say(stream, &encoded(Up::Hello(hello)));
        let (nodes, bind) = (numbers.clone().collect(), encoded(Up::Bind(bindings(numbers.clone()))));
        wire.say(stream, &bind);
        let beats = encoded(Up::Beats(v1::Beats { handles: handles(numbers.len(), HANDLES), acknowledge: 0 }));
        Ok(Self { wire, stream, nodes, tally, beats, bind, round: 0 })
    }

    async fn bound(&mut self) -> Result<()> {
        let mut missing = self.nodes.len();
        while missing > 0 {
            if let Event::Message { message, .. } = self.wire.next().await?
                && let Some(Down::Bound(bound)) = v1::CarrierReply::decode(message)?.message
            {
                let refused = bound.nodes.iter().find(|node| node.incarnation == 0);
                ensure!(refused.is_none(), "a node was not bound: {refused:?}");
                missing = missing.saturating_sub(bound.nodes.len());
            }
        }
        Ok(())
    }

    async fn run(mut self) -> Result<()> {
        let mut idle = interval(IDLE_EVERY);
        loop {
            if self.tally.flooding.load(Ordering::Relaxed) {
                self.fill();
            }
            tokio::select! {
                event = self.wire.next() => self.happened(event?)?,
                // Asked for anew each time: that there is room again is no event.
                _ = idle.tick() => if self.has_room() { self.say_beats() },
            }
        }
    }

    /// For any of its messages, and then some.
    fn has_room(&self) -> bool {
        self.wire.backlog() < BACKLOG_MAX && self.wire.has_room(self.stream, 2 * self.beats.len())
    }

    /// Says as much as there is room for.
    fn fill(&mut self) {
        while self.has_room() {
            self.round += 1;
            if !self.round.is_multiple_of(BEATS_PER_ROUND as u64) {
                self.say_beats();
                continue;
            }
            self.wire.say(self.stream, &self.bind);
            self.tally.bindings.fetch_add(self.nodes.len() as u64, Ordering::Relaxed);
            self.say_status();
        }
    }

    fn say_beats(&mut self) {
        self.wire.say(self.stream, &self.beats);
        self.tally.said.fetch_add(HANDLES as u64, Ordering::Relaxed);
    }

    /// Of its nodes in turns.
    fn say_status(&mut self) {
        let place = (self.round / BEATS_PER_ROUND as u64) as usize % self.nodes.len();
        let (status, running) = (status(self.nodes[place], self.round), Some(v1::Running::default()));
        let report = v1::StatusReport { sequence: self.round, status: status.into(), running };
        let handle = u32::try_from(place).unwrap_or(u32::MAX);
        let report = v1::CarriedStatus { handle, report: Some(report) };
        self.wire.say(self.stream, &encoded(Up::Status(report)));
        self.tally.statuses.fetch_add(1, Ordering::Relaxed);
        self.tally.said.fetch_add(1, Ordering::Relaxed);
    }

    fn happened(&mut self, event: Event) -> Result<()> {
        let message = match event {
            Event::Message { message, .. } => message,
            Event::Pong(_) => return Ok(()),
            Event::Ended { .. } => bail!("the replica ended the stream"),
        };
        match v1::CarrierReply::decode(message)?.message {
            Some(Down::Bound(bound)) => {
                let refused = bound.nodes.iter().filter(|node| node.incarnation == 0).count();
                self.tally.refused.fetch_add(refused, Ordering::Relaxed);
            }
            Some(Down::Carried(_)) => drop(self.tally.answered.fetch_add(1, Ordering::Relaxed)),
            Some(Down::Welcome(_) | Down::Terms(_) | Down::Move(_) | Down::Acknowledged(_)) | None => {}
        }
        Ok(())
    }
}

fn bindings(numbers: Range<usize>) -> v1::Bind {
    let binding =
        |(handle, number)| v1::Binding { handle, node: node::name(number), incarnation: 0, orders_revision: 0 };
    v1::Bind { bindings: (0..).zip(numbers).map(binding).collect() }
}

/// So many, of the first `nodes` in turns.
fn handles(nodes: usize, count: usize) -> Vec<u32> {
    (0..u32::try_from(nodes).unwrap_or(u32::MAX)).cycle().take(count).collect()
}

/// What no other round says.
fn status(number: usize, round: u64) -> String {
    node::status(number).replace(KERNEL, &format!("{KERNEL}-{round}"))
}

fn encoded(message: Up) -> Vec<u8> {
    v1::CarrierMessage { message: Some(message) }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_another() {
        assert_ne!(status(7, 1), status(7, 2));
        assert!(serde_json::from_str::<serde_json::Value>(&status(7, 1)).is_ok());
    }

    #[test]
    fn handles_are_those_of_its_nodes_in_turns() {
        assert_eq!(handles(3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert!(handles(0, 7).is_empty());
    }
}
