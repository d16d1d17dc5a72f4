//! Metrics of the pulse path: beats, sessions, digests, and the times in which this replica was blind.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use muster_lifecycle::replica::ReplicaId;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, counter, counters, durations, gauge, gauges, registered};
use crate::session::figures::{RefusalReason, SessionFigures};

/// From 1 ms to beyond the second after which a round trip counts as missed.
const ROUND_TRIP_BUCKETS: (f64, f64, u16) = (0.001, 2.0, 12);

#[derive(Debug)]
pub struct Pulse {
    digest_pulls: Family<Pull, Counter>,
    digest_round_trip: Histogram,
    digest_bytes: Counter,
    blind: Family<Label, Gauge>,
    blind_seconds: Counter<f64, AtomicU64>,
    wall_clock_jump: Gauge<f64, AtomicU64>,
}

/// Why this replica may not have heard a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blind {
    Takeover,
    Stall,
    Quorum,
    Digest,
    Canary,
}

/// The outcome of a request for a peer's digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullOutcome {
    /// The digest came in time and is part of what this replica knows.
    Merged,
    /// The digest came so late that its ages can no longer be trusted.
    Late,
    /// The digest came and could not be used.
    Refused,
    /// The digest did not come.
    Failed,
}

/// The age of a peer's last good digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestFigures {
    pub replica: ReplicaId,
    pub age: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pull {
    replica: u64,
    outcome: PullOutcome,
}

// === impl Pulse ===

impl Pulse {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let blind: Family<Label, Gauge> =
            registered(registry, "muster_blind", "Whether this replica withholds verdicts, by excuse");
        for excuse in Blind::ALL {
            blind.get_or_create(&excuse.label()).set(0);
        }
        Self {
            digest_pulls: registered(registry, "muster_digest_pulls", "Digests asked for, by replica and outcome"),
            digest_round_trip: durations(
                registry,
                "muster_digest_round_trip_seconds",
                "How long a peer took to answer with its digest",
                ROUND_TRIP_BUCKETS,
            ),
            digest_bytes: registered(registry, "muster_digest_bytes", "Bytes of digests received"),
            blind,
            blind_seconds: registered(registry, "muster_blind_seconds", "Time during which any excuse was in force"),
            wall_clock_jump: registered(
                registry,
                "muster_wall_clock_jump_seconds",
                "How far the wall clock is ahead of the time by which certificates are judged; 0 if it is believed",
            ),
        }
    }

    /// A digest was asked for; `bytes` is the size of what came, which may be zero.
    pub fn pulled(&self, from: ReplicaId, outcome: PullOutcome, took: Duration, bytes: u64) {
        self.digest_pulls.get_or_create(&Pull { replica: from.0, outcome }).inc();
        self.digest_bytes.inc_by(bytes);
        if outcome != PullOutcome::Failed {
            self.digest_round_trip.observe(took.as_secs_f64());
        }
    }

    pub fn excused(&self, excuse: Blind, in_force: bool) {
        self.blind.get_or_create(&excuse.label()).set(i64::from(in_force));
    }

    /// The wall clock is so much ahead of the time that is believed.
    pub fn wall_clock_jumped(&self, ahead_ms: i64) {
        self.wall_clock_jump.set(ahead_ms as f64 / 1_000.0);
    }

    /// Some excuse has been in force for this much longer.
    pub fn was_blind(&self, duration: Duration) {
        self.blind_seconds.inc_by(duration.as_secs_f64());
    }
}

// === impl Blind ===

impl Blind {
    pub const ALL: [Self; 5] = [Self::Takeover, Self::Stall, Self::Quorum, Self::Digest, Self::Canary];

    fn label(self) -> Label {
        let name = match self {
            Self::Takeover => "takeover",
            Self::Stall => "stall",
            Self::Quorum => "quorum",
            Self::Digest => "digest",
            Self::Canary => "canary",
        };
        [("excuse", name)]
    }
}

// === impl PullOutcome ===

impl EncodeLabelValue for PullOutcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let name = match self {
            Self::Merged => "merged",
            Self::Late => "late",
            Self::Refused => "refused",
            Self::Failed => "failed",
        };
        EncodeLabelValue::encode(&name, encoder)
    }
}

pub(super) fn encode_sessions(sessions: &SessionFigures, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let beats = [("session", sessions.session_beats()), ("aggregator", sessions.aggregator_beats())];
    let beats = beats.into_iter().map(|(door, count)| ([("door", door)], count as f64));
    counters(encoder, ("muster_beats", "Heartbeats heard first-hand, by how they came."), beats)?;
    let open = ("muster_sessions", "Agent sessions open at this replica.");
    gauge(encoder, open, sessions.sessions() as f64)?;
    let moves = ("muster_session_moves", "Agents asked to go to another replica.");
    counter(encoder, moves, sessions.moves() as f64)?;
    let delays = ("muster_session_delays", "Reports and registrations that had to wait for their node's budget.");
    counter(encoder, delays, sessions.delayed() as f64)?;
    let strays = ("muster_stray_beats", "Beats of aggregators for handles that stand for no node.");
    counter(encoder, strays, sessions.unknown_handles() as f64)?;
    let refused =
        RefusalReason::ALL.into_iter().map(|reason| ([("reason", reason.label())], sessions.refused(reason) as f64));
    counters(encoder, ("muster_sessions_refused", "Sessions refused, by reason."), refused)
}

pub(super) fn encode(digests: &[DigestFigures], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let ages = digests.iter().map(|digest| ([("replica", digest.replica.0)], digest.age.as_secs_f64()));
    gauges(encoder, ("muster_digest_age_seconds", "How old the last good digest of a replica is."), ages)
}
