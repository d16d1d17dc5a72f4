//! Greeting between replicas: decides which replica may speak to which.
//!
//! Every message between replicas names the fleet, the generation of the cluster, the replica and the store that it
//! comes from and is meant for. A replica whose disk was wiped comes back with another store. Its old votes are
//! forgotten, so no replica may count it as the voter it was (I-15, I-28).

use std::sync::Arc;

use bytes::Bytes;
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::level_in_force::LevelInForce;
use muster_lifecycle::meta::Uid;
use muster_proto::v1;
use thiserror::Error;

use crate::feed::{Feed, Published};
use crate::level_guard::{LevelGuard, Outgrown};
use crate::replication::peer_memory::{PeerMemory, explain, store_from};
use crate::storage::peer_mark::{MarkDispute, PeerMark};
use muster_lifecycle::replica::ReplicaId;

/// The replica that the other end proved to be by its certificate. The TLS listener puts it into the extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvenReplica(pub ReplicaId);

/// This replica, as it introduces itself.
#[derive(Debug, Clone)]
pub struct PeerIdentity {
    pub fleet: Arc<str>,
    pub id: ReplicaId,
    pub store: Uid,
}

/// The reason why a message from another replica was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GreetingRefusal {
    #[error("the message carries no greeting")]
    NoGreeting,
    #[error("the caller's certificate is not a replica's")]
    NotProven,
    #[error("the caller says it is replica {claimed} but its certificate is replica {proven}'s")]
    Impostor { claimed: ReplicaId, proven: ReplicaId },
    #[error("the caller belongs to fleet {theirs}, this replica to fleet {ours}")]
    OtherFleet { theirs: String, ours: String },
    #[error(
        "the caller's cluster is generation {theirs}, this replica's is {ours}: one of them was restored from a backup"
    )]
    OtherGeneration { theirs: u64, ours: u64 },
    #[error("the message is for replica {meant}, this is replica {ours}")]
    WrongAddress { meant: ReplicaId, ours: ReplicaId },
    #[error(
        "{subject} is known with another store: its disk was wiped or replaced; remove it and add a new replica under a new id"
    )]
    OtherStore { subject: String },
    #[error("replica {id} was removed from the cluster; ids are never reused")]
    Retired { id: ReplicaId },
    #[error(
        "replica {id} speaks {levels} and the cluster is at level {level}, which version {raised_by} raised: run that \
         version on it"
    )]
    LevelNotSpoken { id: ReplicaId, levels: LevelRange, level: Level, raised_by: String },
    #[error(transparent)]
    Outgrown(#[from] Outgrown),
    #[error("{}", explain(*id, *dispute))]
    Forgot { id: ReplicaId, dispute: MarkDispute },
}

impl From<GreetingRefusal> for tonic::Status {
    fn from(refusal: GreetingRefusal) -> Self {
        Self::permission_denied(refusal.to_string())
    }
}

// === impl PeerIdentity ===

impl PeerIdentity {
    /// The greeting for `to`, which names the store that the cluster knows it by.
    pub fn greet(&self, to: ReplicaId, feed: &Feed, memory: &PeerMemory) -> v1::Greeting {
        let current = feed.current();
        let known = current.state.replicas().get(&to).map(|known| known.store);
        let to_store = known.or_else(|| Some(memory.about(to)?.store)).map_or_else(Bytes::new, store_bytes);
        let PeerMark { store: _, run, start, promises } = memory.own();
        v1::Greeting {
            fleet: self.fleet.to_string(),
            generation: wire_generation(&current),
            from: self.id.0,
            from_store: store_bytes(self.store),
            to: to.0,
            to_store,
            run,
            start,
            promises,
            heard: memory.told(),
            ..v1::Greeting::default()
        }
    }

    /// Checks a greeting. Returns the caller's id if it may speak to this replica.
    pub fn check(
        &self,
        proven: Option<ProvenReplica>,
        greeting: Option<&v1::Greeting>,
        feed: &Feed,
    ) -> Result<ReplicaId, GreetingRefusal> {
        let greeting = greeting.ok_or(GreetingRefusal::NoGreeting)?;
        let from = ReplicaId(greeting.from);
        self.check_belonging(proven, greeting)?;
        let current = feed.current();
        let ours = wire_generation(&current);
        if ours != UNSETTLED && greeting.generation != UNSETTLED && greeting.generation != ours {
            return Err(GreetingRefusal::OtherGeneration { theirs: greeting.generation, ours });
        }
        if let Some(known) = current.state.replicas().get(&from) {
            if known.retired {
                return Err(GreetingRefusal::Retired { id: from });
            }
            if store_bytes(known.store) != greeting.from_store {
                return Err(GreetingRefusal::OtherStore { subject: format!("replica {from}") });
            }
        }
        Ok(from)
    }

    pub(crate) fn check_belonging(
        &self,
        proven: Option<ProvenReplica>,
        greeting: &v1::Greeting,
    ) -> Result<(), GreetingRefusal> {
        let ProvenReplica(proven) = proven.ok_or(GreetingRefusal::NotProven)?;
        let (from, to) = (ReplicaId(greeting.from), ReplicaId(greeting.to));
        if proven != from {
            return Err(GreetingRefusal::Impostor { claimed: from, proven });
        }
        if greeting.fleet != *self.fleet {
            return Err(GreetingRefusal::OtherFleet { theirs: greeting.fleet.clone(), ours: self.fleet.to_string() });
        }
        if to != self.id {
            return Err(GreetingRefusal::WrongAddress { meant: to, ours: self.id });
        }
        if !greeting.to_store.is_empty() && greeting.to_store != store_bytes(self.store) {
            return Err(GreetingRefusal::OtherStore { subject: format!("this replica ({})", self.id) });
        }
        Ok(())
    }
}

/// Whether both ends speak the level in force. If this end does not, the replica halts; the other end is not counted
/// as a member that takes part until it does.
pub(crate) fn check_levels(
    from: ReplicaId,
    greeting: &v1::Greeting,
    in_force: &LevelInForce,
    guard: &LevelGuard,
) -> Result<(), GreetingRefusal> {
    guard.told(greeting.level, &greeting.raised_by)?;
    let levels = spoken(greeting.level_min, greeting.level_max);
    // A replica that speaks only higher levels meets a replica that lags behind.
    if levels.max >= in_force.level {
        return Ok(());
    }
    let (level, raised_by) = (in_force.level, in_force.raised_by.to_string());
    Err(GreetingRefusal::LevelNotSpoken { id: from, levels, level, raised_by })
}

/// The levels of a replica. One that does not say so speaks the first level only.
pub(crate) fn spoken(min: u32, max: u32) -> LevelRange {
    let level = |number: u32| Level(number.max(Level::FIRST.0));
    LevelRange::new(level(min), level(max))
}

/// The generation of a replica that has applied nothing: it belongs to none yet and only asks to be let in.
const UNSETTLED: u64 = 0;

fn wire_generation(current: &Published) -> u64 {
    if current.applied.is_some() { current.state.generation() + 1 } else { UNSETTLED }
}

/// The mark of the sender of a greeting.
pub(crate) fn mark_of(greeting: &v1::Greeting) -> Option<PeerMark> {
    let store = store_from(&greeting.from_store)?;
    Some(PeerMark { store, run: greeting.run, start: greeting.start, promises: greeting.promises })
}

pub(crate) fn store_bytes(store: Uid) -> Bytes {
    Bytes::copy_from_slice(&store.0.to_be_bytes())
}
