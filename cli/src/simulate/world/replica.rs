//! One simulated controller process: its clock, what it heard itself, what its peers told it, and its excuses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_pulse::digest::Boot;
use muster_pulse::excuse::REATTACH_MAX;
use muster_pulse::inbox::DigestInbox;
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::tick::Tick;

use super::{CLUSTER_TIME_AT_START, DIGEST_PERIOD, Millis, REPLICAS, ReplicaIndex};

pub(super) struct Replica {
    pub(super) index: ReplicaIndex,
    /// When its process started, on the world's clock: no two replicas' ticks are alike.
    booted: i64,
    pub(super) pulses: Arc<PulseMonitor>,
    /// The source of each peer's digests, by the peer's index.
    outboxes: Vec<DigestOutbox>,
    /// The digests from each peer, by the peer's index; none for itself.
    inboxes: Vec<Option<DigestInbox>>,
    /// Whether a peer, by its index, has not been told everything yet.
    untold: [bool; REPLICAS],
    pub(super) alive: bool,
    pub(super) stalled_until: Option<Millis>,
    pub(super) stalled_since: Option<Millis>,
    /// Beats that came while it stood still.
    held_back: BTreeSet<Slot>,
    pub(super) wall_offset: i64,
    /// When it last reached the leader, or led itself.
    pub(super) last_contact: Millis,
}

/// Before the world began each replica had run for a different while.
const UPTIME_AT_START: i64 = 1_000_003;

impl Replica {
    pub(super) fn at_start(index: ReplicaIndex, backoff_cap: Duration) -> Self {
        let uptime = UPTIME_AT_START * i64::try_from(index + 1).unwrap_or(1);
        let mut replica = Self::booted(index, -uptime, 0, backoff_cap);
        replica.was_told_all_along();
        replica
    }

    /// The world does not begin with a start of its replicas.
    fn was_told_all_along(&mut self) {
        let start = self.tick(0);
        let peers = (0..REPLICAS).filter(|peer| *peer != self.index).map(replica_id);
        for peer in peers {
            let mut before = 2 * REATTACH_MAX;
            while !before.is_zero() {
                self.pulses.blindness().digest_complete(peer, start.before(before));
                before = before.saturating_sub(Duration::from_millis(DIGEST_PERIOD));
            }
        }
    }

    /// The same replica after a crash: a new process that remembers nothing.
    pub(super) fn reborn(&self, now: Millis, backoff_cap: Duration) -> Self {
        let reborn = Self::booted(self.index, signed(now), now, backoff_cap);
        Self { wall_offset: self.wall_offset, ..reborn }
    }

    fn booted(index: ReplicaIndex, booted: i64, life: u64, backoff_cap: Duration) -> Self {
        let pulses = PulseMonitor::new(replica_id(index), backoff_cap);
        let inboxes = (0..REPLICAS)
            .map(|peer| pulses.admit(replica_id(peer)).ok().map(|table| DigestInbox::new(replica_id(peer), table)))
            .collect();
        let boot = Boot(life);
        Self {
            index,
            booted,
            outboxes: (0..REPLICAS).map(|_| DigestOutbox::new(&pulses.tables(), boot)).collect(),
            inboxes,
            pulses: Arc::new(pulses),
            untold: [true; REPLICAS],
            alive: true,
            stalled_until: None,
            stalled_since: None,
            held_back: BTreeSet::new(),
            wall_offset: 0,
            last_contact: life,
        }
    }

    pub(super) fn tick(&self, now: Millis) -> Tick {
        let uptime = signed(now).saturating_sub(self.booted);
        Tick::since_boot(Duration::from_millis(u64::try_from(uptime).unwrap_or_default()))
    }

    pub(super) fn stamp(&self, now: Millis) -> Stamp {
        let cluster = ClusterTime(CLUSTER_TIME_AT_START.saturating_add(now));
        Stamp { cluster, wall: WallTime(signed(now).saturating_add(self.wall_offset)) }
    }

    pub(super) fn is_awake(&self) -> bool {
        self.alive && self.stalled_until.is_none()
    }

    /// Whether the beat is in the table now, rather than waiting in a buffer.
    pub(super) fn hear(&mut self, slot: Slot, now: Millis) -> bool {
        if self.stalled_until.is_some() {
            self.held_back.insert(slot);
            return false;
        }
        let _ = self.pulses.own().beat(slot, self.tick(now));
        self.untold = [true; REPLICAS];
        true
    }

    /// The replica runs again; returns the beats that came meanwhile and are still to be heard.
    pub(super) fn wake(&mut self) -> BTreeSet<Slot> {
        self.stalled_until = None;
        std::mem::take(&mut self.held_back)
    }

    /// A new stream in both directions.
    pub(super) fn meet_anew(&mut self, peer: ReplicaIndex) {
        self.untold[peer] = true;
        if let Some(inbox) = &mut self.inboxes[peer] {
            inbox.restart();
        }
    }

    pub(super) fn digest_missed(&mut self, peer: ReplicaIndex, now: Millis) {
        let tick = self.tick(now);
        self.pulses.blindness().digest_missed(replica_id(peer), tick);
    }
}

/// `listener` pulls from `teller`. A digest without news would say the same again, so only the news are really sent.
pub(super) fn pull(listener: &mut Replica, teller: &mut Replica, now: Millis) {
    let tick = listener.tick(now);
    let complete = !teller.untold[listener.index] || transfer(listener, teller, now);
    if complete {
        teller.untold[listener.index] = false;
        listener.pulses.blindness().digest_complete(replica_id(teller.index), tick);
    } else {
        listener.pulses.blindness().digest_missed(replica_id(teller.index), tick);
    }
}

/// The answer is made, and lost.
pub(super) fn pull_in_vain(listener: &mut Replica, teller: &mut Replica, now: Millis) {
    let (asked, answered) = (listener.tick(now), teller.tick(now));
    if let Some(inbox) = &mut listener.inboxes[teller.index] {
        drop(teller.outboxes[listener.index].answer(inbox.ask(asked), answered));
    }
    listener.digest_missed(teller.index, now);
}

fn transfer(listener: &mut Replica, teller: &mut Replica, now: Millis) -> bool {
    let (asked, answered) = (listener.tick(now), teller.tick(now));
    let Some(inbox) = &mut listener.inboxes[teller.index] else { return false };
    let mut parts = teller.outboxes[listener.index].answer(inbox.ask(asked), answered);
    let mut part = Vec::new();
    while parts.next_into(&mut part) {
        if inbox.receive(&part, asked).is_err() {
            return false;
        }
    }
    inbox.complete_as_of() == Some(asked)
}

pub(super) fn replica_id(index: ReplicaIndex) -> ReplicaId {
    ReplicaId(index as u64 + 1)
}

fn signed(millis: Millis) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
