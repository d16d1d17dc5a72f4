//! Excuses: why a silence may be this replica's fault and not the node's, from when, and for how long that counts.
//!
//! An excuse lasts while the replica is blind and one reattach window longer. The window is left out if no agent lost
//! its connection meanwhile. Blindness towards one replica counts for a bounded time only, so that a replica that is
//! lost for good does not excuse its nodes for ever. A node that was silent before its replica was lost has no
//! connection to lose with it, so that loss gives it no window ([`KnownSilences`]).

use std::fmt;
use std::time::Duration;

use crate::tick::Tick;
use muster_lifecycle::replica::ReplicaId;

/// The longest reattach window, prolonged or not.
pub const REATTACH_MAX: Duration = Duration::from_secs(120);

/// The time that one report of queued handshakes adds to the windows in force.
pub const PROLONGED_BY: Duration = Duration::from_secs(5);

/// A replica that keeps failing is judged for at least this long between two runs of excuses: several sweeps.
pub const JUDGED_BETWEEN_RUNS: Duration = Duration::from_secs(5);

/// A seamless period that still lasts ends this much later than now, so that it is in force.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A cause of blindness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlindnessCause {
    /// This replica took over and does not hold the full table of every reachable voter yet.
    Takeover,
    /// This replica itself stood still.
    Stall,
    /// This replica does not hear a quorum.
    Quorum,
    /// The named replica's digest was lost or late.
    Digest(ReplicaId),
    /// The named replica does not hear its own beat through its own listener in time.
    Canary(ReplicaId),
}

/// An excuse that holds back verdicts now, for `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    pub cause: BlindnessCause,
    pub started: Tick,
    /// `None` while the replica is still blind.
    pub ended: Option<Tick>,
    /// When it stops holding back verdicts; while still blind, when it would if the blindness ended now.
    pub until: Tick,
}

/// The nodes of a lost replica that it had itself reported as silent, by when they were last heard.
///
/// Until the loss everything was in order, since a moment before those beats: the digests of all replicas, and the
/// canaries. So the missing beats were not lost here. A node that lives beats once in half a window, so one of which
/// the replica's last digest had nothing to tell for a whole window was silent already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownSilences {
    pub(crate) in_order_since: Tick,
    pub(crate) heard_until: Tick,
}

/// One stretch of blindness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlindPeriod {
    pub(crate) started: Tick,
    pub(crate) ended: Option<Tick>,
    /// The start of the run of barely separated periods that this one belongs to.
    run_started: Tick,
    prolonged: Tick,
    /// No agent lost its connection meanwhile, so that no agent is waited for once it is over.
    seamless: bool,
    /// The nodes to which this period gives no window.
    pub(crate) known_silences: Option<KnownSilences>,
}

// === impl BlindnessCause ===

impl BlindnessCause {
    /// The one replica it concerns, or `None` if it concerns every node.
    pub fn replica(self) -> Option<ReplicaId> {
        match self {
            Self::Takeover | Self::Stall | Self::Quorum => None,
            Self::Digest(replica) | Self::Canary(replica) => Some(replica),
        }
    }
}

impl fmt::Display for BlindnessCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Takeover => {
                f.write_str("the leader is new and is still collecting heartbeats from the other replicas")
            }
            Self::Stall => f.write_str("the leader's process was stalled"),
            Self::Quorum => f.write_str("the leader does not hear a quorum"),
            Self::Digest(replica) => write!(f, "what replica {replica} heard is missing or late"),
            Self::Canary(replica) => write!(f, "replica {replica}'s check of its own agent listener is late"),
        }
    }
}

// === impl KnownSilences ===

impl KnownSilences {
    pub(crate) fn include(&self, heard: Tick) -> bool {
        (self.in_order_since..=self.heard_until).contains(&heard)
    }
}

// === impl BlindPeriod ===

impl BlindPeriod {
    pub(crate) fn new(started: Tick) -> Self {
        Self {
            started,
            ended: None,
            run_started: started,
            prolonged: Tick::ZERO,
            seamless: false,
            known_silences: None,
        }
    }

    /// A period that leaves no window behind.
    pub(crate) fn seamless(started: Tick) -> Self {
        Self { seamless: true, ..Self::new(started) }
    }

    /// The same period, in which these nodes were known to be silent before.
    pub(crate) fn knowing(self, known_silences: Option<KnownSilences>) -> Self {
        Self { known_silences, ..self }
    }

    pub(crate) fn over(started: Tick, ended: Tick) -> Self {
        Self { ended: Some(ended), ..Self::new(started) }
    }

    /// Blind again at `now`: part of the same run unless verdicts were possible for a while in between.
    pub(crate) fn reopened(self, excuse: BlindnessCause, now: Tick, window: Duration) -> Self {
        let run_started = if self.is_run_over(excuse, now, window) { now } else { self.run_started };
        Self { run_started, ..Self::new(now) }
    }

    /// Whether its run reached the ceiling before it had a whole window. A loss after repeated flapping would get no
    /// excuse because the ceiling is used up. It starts a new run; only one such run is allowed.
    pub(crate) fn is_owed_a_run(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> bool {
        let whole = self.counted_end(excuse, now, window).after(window);
        whole > self.ceiling(excuse, now, window) && self.is_run_over(excuse, now, window)
    }

    pub(crate) fn is_seamless(&self) -> bool {
        self.seamless
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn until(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> Tick {
        if self.seamless {
            let lasting = if self.is_open() { A_MOMENT } else { Duration::ZERO };
            return self.counted_end(excuse, now, window).after(lasting);
        }
        let until = self.counted_end(excuse, now, window).after(window);
        until.max(self.prolonged).min(self.ceiling(excuse, now, window))
    }

    /// As [`Self::until`], for a node that was silent before the loss. It has no window, but if agents queue for a
    /// handshake because of the loss, it may be among them.
    pub(crate) fn until_for_silent(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> Tick {
        self.prolonged.min(self.ceiling(excuse, now, window))
    }

    /// Agents still wait for a handshake at `now`: those that could not come back yet get a little longer.
    pub(crate) fn prolong(&mut self, excuse: BlindnessCause, now: Tick, window: Duration) {
        if self.until(excuse, now, window) > now {
            self.prolonged = now.after(PROLONGED_BY);
        }
    }

    /// The end of the blindness as far as it counts.
    pub(crate) fn counted_end(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> Tick {
        let end = self.ended.unwrap_or(now);
        match excuse {
            // A blind leader cannot judge any node, however long that takes.
            BlindnessCause::Stall | BlindnessCause::Quorum => end,
            // A voter that answers but never tells its table counts as unreachable in the end. A replica whose listener
            // does not answer still holds its agents' connections, so they have no reason to move at once.
            BlindnessCause::Takeover | BlindnessCause::Canary(_) => end.min(self.started.after(REATTACH_MAX)),
            // Agents of a replica that is gone start to move when it goes. If it comes back before they have moved,
            // they may come back to it. If it comes back later, its digest itself says which nodes are there.
            BlindnessCause::Digest(_) => {
                self.ended.filter(|end| *end <= self.started.after(window)).unwrap_or(self.started)
            }
        }
    }

    /// Whether verdicts have been possible for a while.
    fn is_run_over(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> bool {
        now >= self.until(excuse, now, window).after(JUDGED_BETWEEN_RUNS)
    }

    fn ceiling(&self, excuse: BlindnessCause, now: Tick, window: Duration) -> Tick {
        match excuse {
            BlindnessCause::Takeover | BlindnessCause::Stall | BlindnessCause::Quorum => {
                self.counted_end(excuse, now, window).after(REATTACH_MAX)
            }
            BlindnessCause::Digest(_) => self.run_started.after(REATTACH_MAX),
            BlindnessCause::Canary(_) => self.run_started.after(REATTACH_MAX).after(window),
        }
    }
}
