//! Rejections: why a command was refused. Every message names the field or object and the rule.
//!
//! A rejection is stored with its client and travels between replicas, so it is a code with parameters. The sentence is
//! made where it is read, and rewording it changes no state. Texts are names and other data, never sentences.

mod limit;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

pub use self::limit::{Limit, LimitKind, NodePart};
use crate::object::credential::Distrust;
use crate::object::kind::Kind;
use crate::object::node::{ConditionStatus, Incarnation};
use crate::object::pod::{PlacementRefusal, PodKey};
use crate::object::zone::ZoneKey;
use crate::value::author::Author;
use crate::value::invalid::Invalid;
use crate::value::level::{Level, LevelRange};
use crate::value::meta::{Revision, Uid};
use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;
use crate::value::time::Period;

impl From<Invalid> for Rejection {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Distrust> for Rejection {
    fn from(distrust: Distrust) -> Self {
        Self::Distrusted(distrust)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(RejectionKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`Rejection`], without their parameters.")]
pub enum Rejection {
    #[error("{0}")]
    Invalid(Invalid),
    #[error("{kind} {name:?} not found")]
    NotFound { kind: Kind, name: Text },
    #[error("{kind} {name:?} already exists")]
    AlreadyExists { kind: Kind, name: Text },
    #[error("conflict on {kind} {name:?}: expected resource version {}, it is {}", expected.0, actual.0)]
    Conflict { kind: Kind, name: Text, expected: Revision, actual: Revision },
    #[error(
        "conflict on {kind} {name:?}: the {kind} with uid {expected} is gone, another one has its name (uid {actual})"
    )]
    OtherUid { kind: Kind, name: Text, expected: Uid, actual: Uid },
    #[error("proposed in term {proposed}, committed in term {committed}: the proposer no longer led")]
    ForeignTerm { proposed: u64, committed: u64 },
    #[error("request {sequence} was overtaken by request {latest} of the same client; its outcome is no longer kept")]
    Overtaken { sequence: u64, latest: u64 },
    #[error(
        "replica {id} is known with another store: its disk was wiped or replaced, and a vote it gave may be forgotten; \
             remove it (`muster member remove {id}`) and add a new replica under a new id"
    )]
    ReplicaStoreChanged { id: ReplicaId },
    #[error("replica {id} was removed from the cluster; ids are never reused, add the machine under a new id")]
    ReplicaRetired { id: ReplicaId },
    #[error("limit reached: {what} (at most {limit})")]
    LimitReached { what: Limit, limit: u64 },
    /// `what` is the operation's label, a name that is pinned beside the operation's number.
    #[error("{what} is not for {origin} to do")]
    NotEntitled { what: Text, origin: Author },
    #[error("node {name:?} is incarnation {actual}, this was meant for {expected}: it was deleted and created anew", expected = expected.0, actual = actual.0)]
    OtherIncarnation { name: Text, expected: Incarnation, actual: Incarnation },
    #[error(
        "node {name:?} changed since this was decided: its Ready condition is {}, not {}",
        shown(actual),
        shown(expected)
    )]
    ReadyMoved { name: Text, expected: Option<ConditionStatus>, actual: Option<ConditionStatus> },
    #[error("node {name:?} does not wait to be evicted")]
    NotWaiting { name: Text },
    #[error("the zones must be assessed before a node is evicted")]
    ZonesMoved,
    #[error("zone {zone} has no token for an eviction now")]
    NoToken { zone: ZoneKey },
    #[error(
        "evictions are suspended for a while: all zones were fully disrupted, or the grace was shortened, a moment ago"
    )]
    Spared,
    #[error("not all zones are fully disrupted")]
    NotAllDisrupted,
    #[error("decided {age} ago: too long to still be true")]
    Stale { age: Period },
    #[error("pod {name:?} need not leave its node now: its taint or its tolerations changed, or it is leaving already")]
    NotLeaving { name: Text },
    #[error("pod {name:?} does not wait for a node")]
    NotUnplaced { name: Text },
    #[error("node {node:?} does not take pod {name:?}: {why}")]
    Unfit { name: Text, node: Text, why: PlacementRefusal },
    #[error("pod {name:?} is not to be collected")]
    NotGarbage { name: Text },
    #[error(
        "node {name:?} cannot be ready yet: {count} pods that were deleted in its absence, or belong to a former life of \
         it, are not confirmed stopped ({})",
        listed(shown)
    )]
    StillRunning { name: Text, count: u64, shown: Box<[UnstoppedPod]> },
    #[error("node CIDRs are not allocated in this cluster")]
    NoAddressing,
    /// A node's agent asked for something that it may not touch.
    #[error("{0}")]
    Forbidden(Invalid),
    #[error("{0}")]
    Distrusted(Distrust),
    #[error(
        "token {id} is not known: it was never made here, or it ended long ago and cannot be used; `muster token list` \
         shows those that are"
    )]
    NoSuchToken { id: Text },
    #[error(
        "token {id} cannot be revoked: node {node:?} has joined with it, and it lets in no other node; to shut that node \
         out, `muster node revoke {node}`"
    )]
    TokenSpent { id: Text, node: Text },
    #[error("needs level {needs}; replica {id} runs {version} ({levels}); `muster upgrade status` shows more")]
    LevelHeldBack { needs: Level, id: ReplicaId, version: Text, levels: LevelRange },
    #[error(
        "needs level {needs}; level {in_force} is in force; every replica speaks level {needs}: `muster upgrade status` \
         says when it is raised, `muster upgrade finalize` raises it now"
    )]
    LevelNotRaised { needs: Level, in_force: Level },
    #[error(
        "the cluster is at level {level}, which version {raised_by} raised; replica {id} speaks {levels}: run version \
         {raised_by} or a later one that speaks level {level}"
    )]
    LevelNotSpoken { id: ReplicaId, levels: LevelRange, level: Level, raised_by: Text },
}

/// A pod that keeps a node from being ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnstoppedPod {
    Known(PodKey),
    /// One that the agent runs and the state does not know.
    Unknown(Uid),
}

// === impl Rejection ===

impl RejectionKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl Rejection {
    pub(crate) fn limit(what: Limit, most: usize) -> Self {
        Self::LimitReached { what, limit: most as u64 }
    }
}

fn listed(pods: &[UnstoppedPod]) -> String {
    let shown = |pod: &UnstoppedPod| match pod {
        UnstoppedPod::Known(key) => key.to_string(),
        UnstoppedPod::Unknown(uid) => format!("uid {uid}"),
    };
    pods.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn shown(ready: &Option<ConditionStatus>) -> &'static str {
    ready.map_or("absent", ConditionStatus::as_str)
}
