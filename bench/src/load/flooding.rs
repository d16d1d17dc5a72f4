//! A flooding aggregator: it has few nodes and sends as much about them as the wire takes. It sends beats by the
//! thousand, bindings over and over, and a status that differs each time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use muster_proto::v1::aggregator_reply::Message as Down;
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::doors::AgentDoors;
use super::wire::{self, StreamId, Wire, WireEvent};
use super::{carry, node};

/// Beats in one message.
const HANDLES: usize = 16 << 10;
/// Every so many messages one with bindings and one with a status follow instead of beats.
const BEATS_PER_ROUND: usize = 8;
/// Bytes that may wait to be written before more is sent.
const BACKLOG_MAX: usize = 256 << 10;
const BIND_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it beats while it does not flood.
const IDLE_EVERY: Duration = Duration::from_secs(1);
/// The part that differs in each status.
const KERNEL: &str = "6.1.0-31-cloud-amd64";

/// Ends when it is dropped.
pub(crate) struct FloodingAggregator {
    pub(crate) counts: Arc<FloodCounts>,
    task: AbortOnDropHandle<Result<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct FloodCounts {
    /// Beats and statuses, each of which is a beat too.
    pub(crate) sent: AtomicU64,
    pub(crate) bindings: AtomicU64,
    pub(crate) statuses: AtomicU64,
    /// Statuses that were accepted or refused.
    pub(crate) answered: AtomicU64,
    flooding: AtomicBool,
}

struct Driver {
    wire: Wire,
    stream: StreamId,
    nodes: Vec<usize>,
    counts: Arc<FloodCounts>,
    beats: Vec<u8>,
    bind: Vec<u8>,
    round: u64,
}

// === impl FloodingAggregator ===

impl FloodingAggregator {
    /// Returns once all nodes, which exist already, are bound. It beats as others do until it is told to flood.
    pub(crate) async fn start(doors: &AgentDoors, door: usize, numbers: Range<usize>, instance: u64) -> Result<Self> {
        let counts = Arc::<FloodCounts>::default();
        let mut driver = Driver::open(doors, door, numbers, instance, Arc::clone(&counts)).await?;
        let bound = carry::wait_bound(&mut driver.wire, driver.nodes.len());
        timeout(BIND_TIMEOUT, bound).await.context("the flooding aggregator's nodes were not bound")??;
        Ok(Self { counts, task: AbortOnDropHandle::new(tokio::spawn(driver.run())) })
    }

    pub(crate) fn flood(&self, flooding: bool) {
        self.counts.flooding.store(flooding, Ordering::Relaxed);
    }

    /// Whether its connection has ended, which it was not told to do.
    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

// === impl Driver ===

impl Driver {
    async fn open(
        doors: &AgentDoors,
        door: usize,
        numbers: Range<usize>,
        instance: u64,
        counts: Arc<FloodCounts>,
    ) -> Result<Self> {
        let mut wire = Wire::connect(&doors.target(door)?).await?;
        let stream = wire.open(wire::CARRY);
        wire.send(stream, &carry::hello(instance));
        let bindings = (0..).zip(numbers.clone()).map(|(handle, number)| carry::binding(handle, number));
        let bind = carry::bind(bindings.collect());
        wire.send(stream, &bind);
        let beats = carry::beats(handles(numbers.len(), HANDLES), 0);
        Ok(Self { wire, stream, nodes: numbers.collect(), counts, beats, bind, round: 0 })
    }

    async fn run(mut self) -> Result<()> {
        let mut idle = interval(IDLE_EVERY);
        loop {
            if self.counts.flooding.load(Ordering::Relaxed) {
                self.fill();
            }
            tokio::select! {
                event = self.wire.next() => self.handle(event?)?,
                // Checked again each time, because there is no event for new room.
                _ = idle.tick() => if self.has_room() { self.send_beats() },
            }
        }
    }

    /// Room for any of its messages, and then some.
    fn has_room(&self) -> bool {
        self.wire.backlog() < BACKLOG_MAX && self.wire.has_room(self.stream, 2 * self.beats.len())
    }

    /// Sends as much as there is room for.
    fn fill(&mut self) {
        while self.has_room() {
            self.round += 1;
            if !self.round.is_multiple_of(BEATS_PER_ROUND as u64) {
                self.send_beats();
                continue;
            }
            self.wire.send(self.stream, &self.bind);
            self.counts.bindings.fetch_add(self.nodes.len() as u64, Ordering::Relaxed);
            self.send_status();
        }
    }

    fn send_beats(&mut self) {
        self.wire.send(self.stream, &self.beats);
        self.counts.sent.fetch_add(HANDLES as u64, Ordering::Relaxed);
    }

    /// Sends a status of its nodes in turns.
    fn send_status(&mut self) {
        let place = (self.round / BEATS_PER_ROUND as u64) as usize % self.nodes.len();
        let handle = u32::try_from(place).unwrap_or(u32::MAX);
        self.wire.send(self.stream, &carry::status(handle, self.round, status(self.nodes[place], self.round)));
        self.counts.statuses.fetch_add(1, Ordering::Relaxed);
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn handle(&mut self, event: WireEvent) -> Result<()> {
        let Some((_, message)) = carry::message(event)? else { return Ok(()) };
        match carry::decoded(message)? {
            Some(Down::Carried(_)) => drop(self.counts.answered.fetch_add(1, Ordering::Relaxed)),
            Some(Down::Welcome(_) | Down::Terms(_) | Down::Bound(_) | Down::Move(_) | Down::Acknowledged(_)) | None => {
            }
        }
        Ok(())
    }
}

/// `count` handles, of the first `nodes` nodes in turns.
fn handles(nodes: usize, count: usize) -> Vec<u32> {
    (0..u32::try_from(nodes).unwrap_or(u32::MAX)).cycle().take(count).collect()
}

/// A status that differs from those of all other rounds.
fn status(number: usize, round: u64) -> String {
    node::status(number).replace(KERNEL, &format!("{KERNEL}-{round}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_differs() {
        assert_ne!(status(7, 1), status(7, 2));
        assert!(serde_json::from_str::<serde_json::Value>(&status(7, 1)).is_ok());
    }

    #[test]
    fn handles_repeat_in_the_order_of_the_nodes() {
        assert_eq!(handles(3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert!(handles(0, 7).is_empty());
    }
}
