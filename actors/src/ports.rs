//! The ports of the tree: what it reads of its replica, and how the replica observes it. The replica implements
//! these; so do test doubles.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::state::State;
use muster_pulse::monitor::PulseMonitor;
use tokio::sync::mpsc;

use crate::proposal::Proposal;
use muster_pulse::moment::Moment;
use muster_pulse::node_watch::Judgement;

/// The committed state and the time.
pub trait StateSource: Send + Sync + 'static {
    /// The newest committed state; a cheap clone. It contains every change that the tree was told of.
    fn state(&self) -> State;

    /// The present moment, on both clocks.
    fn moment(&self) -> Moment;
}

/// Receives measurements of the tree. Actors call it, so nothing here may block.
pub trait Observer: Send + Sync + 'static {
    /// A sweep over all slots ended; `_silent` of them count as silent.
    fn swept(&self, _took: Duration, _silent: usize) {}

    /// One node was judged.
    fn judged(&self, _judgement: &Judgement, _took: Duration) {}

    /// A round ended: the time from its start to the end of its last judgement.
    fn judging_round(&self, _took: Duration) {}

    fn restarted(&self, _kind: ActorKind) {}

    /// How many nodes are quarantined now.
    fn quarantined(&self, _count: usize) {}

    /// How many actors of the kind there are now.
    fn actors(&self, _kind: ActorKind, _count: usize) {}
}

/// Called at the start of every message that an actor handles. What the probe does, a panic included, happens to the
/// actor.
pub trait Probe: Send + Sync + 'static {
    fn before(&self, _kind: ActorKind, _name: &str) {}

    /// Called when the root actor starts, first of all. If it panics, the tree does not grow.
    fn growing(&self) {}
}

/// Neither observes nor probes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {}
impl Probe for Quiet {}

/// How long a clerk rests after a look that found nothing: it must not look at many nodes for every commit.
pub const CLERK_REST: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Ports {
    pub pulses: Arc<PulseMonitor>,
    pub source: Arc<dyn StateSource>,
    /// [`CLERK_REST`], unless looks cost no time.
    pub rest: Duration,
    /// Bounded. When it is full, the tree waits for its next round and proposes what is still valid then.
    pub proposals: mpsc::Sender<Proposal>,
    pub observer: Arc<dyn Observer>,
    pub probe: Arc<dyn Probe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActorKind {
    Cluster,
    Zone,
    Shard,
    Node,
    EvictionQueue,
    TaintEviction,
    Placement,
    PodGc,
    Staffing,
    Ipam,
}

// === impl ActorKind ===

impl ActorKind {
    pub const ALL: [Self; 10] = [
        Self::Cluster,
        Self::Zone,
        Self::Shard,
        Self::Node,
        Self::EvictionQueue,
        Self::TaintEviction,
        Self::Placement,
        Self::PodGc,
        Self::Staffing,
        Self::Ipam,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Zone => "zone",
            Self::Shard => "shard",
            Self::Node => "node",
            Self::EvictionQueue => "eviction-queue",
            Self::TaintEviction => "taint-eviction",
            Self::Placement => "placement",
            Self::PodGc => "pod-gc",
            Self::Staffing => "staffing",
            Self::Ipam => "ipam",
        }
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
