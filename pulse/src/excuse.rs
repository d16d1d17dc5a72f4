//! Why a silence may be ours and not the node's, from when, and for how long that counts.
//!
//! An excuse lasts while we are blind and one reattach window longer, unless nobody lost its way meanwhile. What keeps a
//! replica that is lost for good from excusing its nodes for ever is that blindness towards one replica counts for a
//! bounded time only.

use std::fmt;
use std::time::Duration;

use crate::tick::Tick;
use muster_lifecycle::replica::ReplicaId;

/// No reattach window is longer, and none is prolonged beyond this.
pub const REATTACH_MAX: Duration = Duration::from_secs(120);

/// What one report of queued handshakes adds to the windows in force.
pub const PROLONGED_BY: Duration = Duration::from_secs(5);

/// An replica that keeps failing is judged for at least this long between two runs of excuses: several sweeps.
pub const JUDGED_BETWEEN_RUNS: Duration = Duration::from_secs(5);

/// While it lasts, blindness is not over now.
const A_MOMENT: Duration = Duration::from_millis(1);

/// What makes us blind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excuse {
    /// This replica took over and does not hold the full table of every reachable voter yet.
    Takeover,
    /// This replica itself stood still.
    Stall,
    /// This replica does not hear a quorum.
    Quorum,
    /// This replica's digest was lost or late.
    Digest(ReplicaId),
    /// This replica does not hear its own beat through its own listener in time.
    Canary(ReplicaId),
}

/// An excuse that holds back verdicts now, for `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    pub excuse: Excuse,
    pub started: Tick,
    /// `None` while we are still blind.
    pub ended: Option<Tick>,
    /// When it stops holding back verdicts; if still blind, when it would if sight came back now.
    pub until: Tick,
}

/// One stretch of blindness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) started: Tick,
    pub(crate) ended: Option<Tick>,
    /// Where the run of barely separated periods began that this one belongs to.
    run_started: Tick,
    prolonged: Tick,
    /// Nobody lost its way meanwhile, so that nobody is waited for once it is over.
    seamless: bool,
}

// === impl Excuse ===

impl Excuse {
    /// The one replica it concerns, or `None` if it concerns every node.
    pub fn replica(self) -> Option<ReplicaId> {
        match self {
            Self::Takeover | Self::Stall | Self::Quorum => None,
            Self::Digest(replica) | Self::Canary(replica) => Some(replica),
        }
    }
}

impl fmt::Display for Excuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Takeover => f.write_str("the leader is new and still gathers what the other replicas heard"),
            Self::Stall => f.write_str("the leader itself stood still"),
            Self::Quorum => f.write_str("the leader does not hear a quorum"),
            Self::Digest(replica) => write!(f, "what replica {replica} heard is missing or late"),
            Self::Canary(replica) => write!(f, "replica {replica} is slow to hear even itself"),
        }
    }
}

// === impl Period ===

impl Period {
    pub(crate) fn new(started: Tick) -> Self {
        Self { started, ended: None, run_started: started, prolonged: Tick::ZERO, seamless: false }
    }

    /// Leaves no window behind.
    pub(crate) fn seamless(started: Tick) -> Self {
        Self { seamless: true, ..Self::new(started) }
    }

    pub(crate) fn over(started: Tick, ended: Tick) -> Self {
        Self { ended: Some(ended), ..Self::new(started) }
    }

    /// Blind again at `now`: part of the same run unless verdicts were possible for a while in between.
    pub(crate) fn reopened(self, excuse: Excuse, now: Tick, window: Duration) -> Self {
        let run_started = if self.is_run_over(excuse, now, window) { now } else { self.run_started };
        Self { run_started, ..Self::new(now) }
    }

    /// Its run reached the ceiling before it had a whole window, so that a loss which came at the end of much flapping
    /// is excused by nothing. It is given a run of its own then, which no ceiling cuts short: there is only one.
    pub(crate) fn is_owed_a_run(&self, excuse: Excuse, now: Tick, window: Duration) -> bool {
        let whole = self.counted_end(excuse, now, window).after(window);
        whole > self.ceiling(excuse, now, window) && self.is_run_over(excuse, now, window)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn until(&self, excuse: Excuse, now: Tick, window: Duration) -> Tick {
        if self.seamless {
            let lasting = if self.is_open() { A_MOMENT } else { Duration::ZERO };
            return self.counted_end(excuse, now, window).after(lasting);
        }
        let until = self.counted_end(excuse, now, window).after(window);
        until.max(self.prolonged).min(self.ceiling(excuse, now, window))
    }

    /// Agents still wait for a handshake at `now`: whoever could not come back yet is given a little longer.
    pub(crate) fn prolong(&mut self, excuse: Excuse, now: Tick, window: Duration) {
        if self.until(excuse, now, window) > now {
            self.prolonged = now.after(PROLONGED_BY);
        }
    }

    /// When the blindness ended as far as it counts.
    pub(crate) fn counted_end(&self, excuse: Excuse, now: Tick, window: Duration) -> Tick {
        let end = self.ended.unwrap_or(now);
        match excuse {
            // A blind leader cannot judge anybody, however long that takes.
            Excuse::Stall | Excuse::Quorum => end,
            // A voter that answers but never tells its table counts as unreachable in the end. A replica whose listener
            // is sick still holds its agents' connections, so they have no reason to move at once.
            Excuse::Takeover | Excuse::Canary(_) => end.min(self.started.after(REATTACH_MAX)),
            // Agents of a replica that is gone start to move when it goes. If it comes back before they have moved, they
            // may come back to it; if later, its digest itself says who is there.
            Excuse::Digest(_) => self.ended.filter(|end| *end <= self.started.after(window)).unwrap_or(self.started),
        }
    }

    /// Verdicts have been possible for a while.
    fn is_run_over(&self, excuse: Excuse, now: Tick, window: Duration) -> bool {
        now >= self.until(excuse, now, window).after(JUDGED_BETWEEN_RUNS)
    }

    fn ceiling(&self, excuse: Excuse, now: Tick, window: Duration) -> Tick {
        match excuse {
            Excuse::Takeover | Excuse::Stall | Excuse::Quorum => {
                self.counted_end(excuse, now, window).after(REATTACH_MAX)
            }
            Excuse::Digest(_) => self.run_started.after(REATTACH_MAX),
            Excuse::Canary(_) => self.run_started.after(REATTACH_MAX).after(window),
        }
    }
}
