//! Hearing of the fleet: first-hand through this replica's sessions, and second-hand through the other replicas.
//!
//! ```text
//!   session --beat--> own table --pulse_service--> the peers pull it
//!                                                       |
//!   exchange: pulls every peer's table <----------------+
//!   contact:  is a leader in reach?        canary: does the own agent door answer?
//!                      \                      /
//!                       blindness (excuses), kept on every replica, so that a new leader already knows
//! ```
//!
//! A beat reads the clock and stores one word; everything else here happens a few times a second.

pub mod canary;
pub mod contact;
pub mod exchange;
mod pull;
pub mod service;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::ClusterTime;
use muster_proto::v1;
use muster_pulse::digest::Boot;
use muster_pulse::moment::Moment;
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::outbox::DigestOutbox;
use muster_pulse::table::{Beat, PulseTable};
use muster_pulse::tick::Tick;
use muster_raft::clock::Clock;
use muster_raft::feed::Feed;

use crate::door::handshakes::Handshakes;

/// Queued handshakes prolong windows by seconds, so a more frequent report adds nothing.
const QUEUE_REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The parts with which a replica hears the fleet. Clones share them.
#[derive(Clone)]
pub struct Hearing(Arc<SharedHearing>);

struct SharedHearing {
    pulses: Arc<PulseMonitor>,
    own: Arc<PulseTable>,
    clock: Arc<dyn Clock>,
    started: Duration,
    feed: Arc<Feed>,
    boot: Boot,
    handshakes: Handshakes,
    canary_late: AtomicBool,
    sessions: AtomicU64,
    queue_reported: Mutex<Option<Tick>>,
    /// The last canary report of each replica, this one included.
    canaries: Mutex<BTreeMap<ReplicaId, CanaryWord>>,
    /// When each peer last acknowledged a digest of ours.
    told: Mutex<BTreeMap<ReplicaId, Tick>>,
}

/// The last report of a replica on its canary.
#[derive(Debug, Clone, Copy)]
struct CanaryWord {
    said: Tick,
    late_since: Option<Tick>,
}

// === impl Hearing ===

impl Hearing {
    /// `backoff_cap` is the longest pause that agents make between two attempts to connect; `handshakes` are those
    /// of the agent door.
    pub fn new(
        me: ReplicaId,
        backoff_cap: Duration,
        clock: Arc<dyn Clock>,
        feed: Arc<Feed>,
        handshakes: Handshakes,
    ) -> Self {
        let pulses = Arc::new(PulseMonitor::new(me, backoff_cap));
        Self(Arc::new(SharedHearing {
            own: pulses.own(),
            pulses,
            started: clock.boot_time(),
            clock,
            feed,
            boot: Boot(rand::random()),
            handshakes,
            canary_late: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            queue_reported: Mutex::new(None),
            canaries: Mutex::default(),
            told: Mutex::default(),
        }))
    }

    pub fn pulses(&self) -> &Arc<PulseMonitor> {
        &self.0.pulses
    }

    pub fn me(&self) -> ReplicaId {
        self.0.pulses.me()
    }

    /// Now, in this replica's own monotonic time.
    pub fn tick(&self) -> Tick {
        Tick::since_boot(self.0.clock.boot_time().saturating_sub(self.0.started))
    }

    /// The agent of the node in `slot` was heard on this replica just now.
    pub fn beat(&self, slot: Slot) -> Beat {
        self.0.own.beat(slot, self.tick())
    }

    /// Now on both clocks. To convert many moments, take one and ask it.
    pub fn moment(&self) -> Moment {
        Moment { tick: self.tick(), stamp: self.0.feed.stamp() }
    }

    pub fn cluster_time_of(&self, tick: Tick) -> ClusterTime {
        self.moment().cluster_time_of(tick)
    }

    pub fn tick_of(&self, time: ClusterTime) -> Tick {
        self.moment().tick_of(time)
    }

    /// The number of sessions open on this replica. The sessions count it, and the peers are told.
    pub fn sessions(&self) -> &AtomicU64 {
        &self.0.sessions
    }

    /// The handshakes of the agent door.
    pub fn handshakes(&self) -> &Handshakes {
        &self.0.handshakes
    }

    /// Whether this replica's beat through its own agent door is late.
    pub fn canary_late(&self) -> bool {
        self.0.canary_late.load(Ordering::Relaxed)
    }

    /// How long this replica's canary has been late, if it is.
    pub(crate) fn canary_late_for(&self) -> Option<Duration> {
        let since = self.canaries().get(&self.me())?.late_since?;
        Some(self.tick().elapsed_since(since))
    }

    /// Whether a peer reported within `limit` that its canary is in time.
    pub(crate) fn another_is_well(&self, limit: Duration) -> bool {
        let (me, now) = (self.me(), self.tick());
        let well = |word: &CanaryWord| word.late_since.is_none() && now.elapsed_since(word.said) <= limit;
        self.canaries().iter().any(|(replica, word)| *replica != me && well(word))
    }

    fn canaries(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, CanaryWord>> {
        self.0.canaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When `peer` last acknowledged what was heard here.
    pub(crate) fn last_told(&self, peer: ReplicaId) -> Option<Tick> {
        self.told().get(&peer).copied()
    }

    /// Whether `boot` is the present run of this process.
    pub(crate) fn is_own(&self, boot: Boot) -> bool {
        boot == self.0.boot
    }

    /// `peer`, a member, acknowledged a digest.
    pub(crate) fn acknowledged_by(&self, peer: ReplicaId) {
        let now = self.tick();
        self.told().insert(peer, now);
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, Tick>> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An outbox for one peer, beginning with the full table.
    pub(crate) fn outbox(&self) -> DigestOutbox {
        DigestOutbox::new(&self.0.pulses.tables(), self.0.boot)
    }

    pub(crate) fn wellbeing(&self) -> v1::Wellbeing {
        v1::Wellbeing {
            canary_late: self.canary_late(),
            handshakes_queued: self.0.handshakes.queued(),
            sessions: self.0.sessions.load(Ordering::Relaxed),
        }
    }

    /// Agents wait for a handshake, here or at a peer.
    fn handshakes_queued(&self, now: Tick) {
        let mut reported = self.0.queue_reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|last| now.elapsed_since(last) >= QUEUE_REPORT_PERIOD) {
            *reported = Some(now);
            self.0.pulses.blindness().handshakes_queued(now);
        }
    }

    /// Records the canary report of `replica`, this one or a peer.
    fn canary(&self, replica: ReplicaId, late: bool, now: Tick) {
        if replica == self.me() {
            self.0.canary_late.store(late, Ordering::Relaxed);
        }
        let mut canaries = self.canaries();
        let word = canaries.entry(replica).or_insert(CanaryWord { said: now, late_since: None });
        *word = CanaryWord { said: now, late_since: late.then(|| word.late_since.unwrap_or(now)) };
        drop(canaries);
        let mut blindness = self.0.pulses.blindness();
        if late {
            blindness.canary_late(replica, now);
        } else {
            blindness.canary_heard(replica, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use muster_lifecycle::time::WallTime;
    use muster_pulse::excuse::{BlindnessCause, PROLONGED_BY};

    use super::*;

    const ME: ReplicaId = ReplicaId(1);
    const NODE: Slot = Slot { index: 5, generation: 1 };
    /// Short, so that a prolonged window shows.
    const BACKOFF_CAP: Duration = Duration::from_secs(1);

    #[test]
    fn a_beat_is_heard_at_this_replicas_own_time() {
        let (hearing, clock) = hearing();
        clock.advance(1_500);
        assert_eq!(hearing.beat(NODE), Beat::Heard);
        let heard = Tick::since_boot(Duration::from_millis(1_500));
        assert_eq!(hearing.pulses().tables().last_heard(NODE), Some((heard, ME)));
    }

    #[test]
    fn local_time_and_cluster_time_convert_into_each_other() {
        let (hearing, clock) = hearing();
        clock.advance(1_000);
        let heard = hearing.tick();
        clock.advance(500);
        let time = hearing.cluster_time_of(heard);
        assert_eq!(time, ClusterTime(1_000));
        assert_eq!(hearing.tick_of(time), heard);
    }

    #[test]
    fn peers_receive_this_replicas_health() {
        let (hearing, _) = hearing();
        assert_eq!(hearing.wellbeing(), v1::Wellbeing::default());
        hearing.canary(ME, true, hearing.tick());
        hearing.handshakes().allow(1);
        let _underway = hearing.handshakes().begin();
        hearing.sessions().store(7, Ordering::Relaxed);
        let told = v1::Wellbeing { canary_late: true, handshakes_queued: true, sessions: 7 };
        assert_eq!(hearing.wellbeing(), told);
        hearing.canary(ReplicaId(2), false, hearing.tick());
        assert!(hearing.canary_late(), "a peer's canary says nothing about the own one");
    }

    #[test]
    fn lateness_of_the_own_canary_and_health_of_peers_are_known() {
        let (hearing, clock) = hearing();
        let (peer, limit) = (ReplicaId(2), Duration::from_secs(3));
        assert_eq!((hearing.canary_late_for(), hearing.another_is_well(limit)), (None, false));
        hearing.canary(ME, true, hearing.tick());
        clock.advance(4_000);
        hearing.canary(ME, true, hearing.tick());
        assert_eq!(hearing.canary_late_for(), Some(Duration::from_secs(4)));
        hearing.canary(peer, false, hearing.tick());
        assert!(hearing.another_is_well(limit));
        clock.advance(3_001);
        assert!(!hearing.another_is_well(limit), "that was long ago");
        hearing.canary(peer, true, hearing.tick());
        assert!(!hearing.another_is_well(limit));
        hearing.canary(ME, false, hearing.tick());
        assert_eq!(hearing.canary_late_for(), None);
    }

    #[test]
    fn queued_handshakes_prolong_the_windows_in_force_once_a_second() {
        let (hearing, clock) = hearing();
        hearing.pulses().blindness().digest_missed(ReplicaId(2), hearing.tick());
        let until = |hearing: &Hearing| hearing.pulses().blindness().excused_until(Some(ReplicaId(2)), hearing.tick());
        clock.advance(1_000);
        hearing.handshakes_queued(hearing.tick());
        let prolonged = (hearing.tick().after(PROLONGED_BY), BlindnessCause::Digest(ReplicaId(2)));
        assert_eq!(until(&hearing), Some(prolonged));
        clock.advance(900);
        hearing.handshakes_queued(hearing.tick());
        assert_eq!(until(&hearing), Some(prolonged));
        clock.advance(100);
        hearing.handshakes_queued(hearing.tick());
        assert_eq!(until(&hearing), Some((hearing.tick().after(PROLONGED_BY), BlindnessCause::Digest(ReplicaId(2)))));
    }

    #[derive(Default)]
    struct HandClock(AtomicU64);

    impl HandClock {
        fn advance(&self, millis: u64) {
            self.0.fetch_add(millis, Ordering::Relaxed);
        }
    }

    impl Clock for HandClock {
        fn boot_time(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn wall_time(&self) -> WallTime {
            WallTime(0)
        }
    }

    fn hearing() -> (Hearing, Arc<HandClock>) {
        let clock = Arc::new(HandClock::default());
        let feed = Feed::new(Arc::clone(&clock) as _);
        (Hearing::new(ME, BACKOFF_CAP, Arc::clone(&clock) as _, feed, Handshakes::default()), clock)
    }
}
