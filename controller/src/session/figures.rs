//! Figures of the sessions, for the metrics.
//!
//! Beats are counted by every session at once, so their count is spread over lanes that do not share a cache line, one
//! per thread while there are enough, and added up when they are read.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use muster_lifecycle::text::Text;
use muster_proto::protocol::{AGENT_PROTOCOL, ProtocolRange};

/// As many as the cores that can count beats at the same time without sharing a lane.
const LANES: usize = 16;

#[derive(Debug, Default)]
pub struct SessionFigures {
    sessions: AtomicU64,
    session_beats: Tally,
    aggregator_beats: Tally,
    moves: AtomicU64,
    unknown_handles: AtomicU64,
    delayed: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
    /// The version of the agents' protocol, plus one, that agents were last found to lack; 0: none was.
    lacking: AtomicU32,
}

/// Why an agent was not given a session, or lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The certificate is that of another node, or of no agent at all.
    Identity,
    /// It did not say hello, or did not register, in time.
    Silence,
    /// Its message cannot be understood, or not at this point.
    Message,
    /// Another instance has the node's session.
    Held,
    /// Its session continues at another replica.
    Continued,
    /// An aggregator may not carry the node.
    Scope,
    /// The rules do not accept the node it brings.
    Rejected,
    /// This replica cannot reach a leader.
    NoLeader,
    /// This replica stops.
    Stopping,
}

/// A counter with many concurrent writers.
#[derive(Debug, Default)]
struct Tally([Lane; LANES]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane(AtomicU64);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The lane in which this thread counts.
    static OWN_LANE: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

// === impl SessionFigures ===

impl SessionFigures {
    /// Says once for each version that some agents speak an older protocol. They keep their sessions.
    pub(crate) fn note_protocol(&self, node: &str, agent: &str, spoken: ProtocolRange) {
        let Some(lacking) = AGENT_PROTOCOL.lacking(spoken) else { return };
        if self.lacking.swap(spoken.max.saturating_add(1), Ordering::Relaxed) != spoken.max.saturating_add(1) {
            let agent = Text::clipped(agent, 64);
            tracing::info!(node, %agent, "an agent {lacking}; upgrade it, and others of its version");
        }
    }

    /// Nodes that have a session at this replica, on a stream of their own or on an aggregator's.
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Beats of nodes that hold a stream of their own.
    pub fn session_beats(&self) -> u64 {
        self.session_beats.total()
    }

    /// Beats that came through aggregators.
    pub fn aggregator_beats(&self) -> u64 {
        self.aggregator_beats.total()
    }

    /// Streams that were asked to go to another replica.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Beats of aggregators for handles that stand for no node.
    pub fn unknown_handles(&self) -> u64 {
        self.unknown_handles.load(Ordering::Relaxed)
    }

    /// Registrations and reports that had to wait because their node had written too often.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn beat(&self) {
        self.session_beats.add(1);
    }

    pub(crate) fn carried(&self, beats: u64) {
        self.aggregator_beats.add(beats);
    }

    pub(crate) fn opened(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handles_unknown(&self, count: u64) {
        self.unknown_handles.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn delay(&self) {
        self.delayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self, reason: RefusalReason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

// === impl RefusalReason ===

impl RefusalReason {
    pub const ALL: [Self; 9] = [
        Self::Identity,
        Self::Silence,
        Self::Message,
        Self::Held,
        Self::Continued,
        Self::Scope,
        Self::Rejected,
        Self::NoLeader,
        Self::Stopping,
    ];

    /// The value of the metric's `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Silence => "silence",
            Self::Message => "message",
            Self::Held => "held",
            Self::Continued => "continued",
            Self::Scope => "scope",
            Self::Rejected => "rejected",
            Self::NoLeader => "no-leader",
            Self::Stopping => "stopping",
        }
    }
}

// === impl Tally ===

impl Tally {
    fn add(&self, count: u64) {
        let lane = OWN_LANE.with(|lane| *lane);
        self.0[lane % LANES].0.fetch_add(count, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_reason_has_its_own_label_and_count() {
        let figures = SessionFigures::default();
        for (place, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            figures.refuse(reason);
            assert_eq!(figures.refused(reason), 1, "{}", reason.label());
        }
    }

    #[test]
    fn beats_are_added_up_over_all_lanes() {
        let figures = SessionFigures::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LANES {
                scope.spawn(|| (0..100).for_each(|_| figures.beat()));
            }
        });
        figures.carried(512);
        assert_eq!((figures.session_beats(), figures.aggregator_beats()), (200 * LANES as u64, 512));
    }
}
