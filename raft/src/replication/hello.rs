//! Hello to another replica: is it there, what does it know, do both belong together.

use std::time::Duration;

use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::table::Digest;

use crate::membership::audit::MembersClaim;
use crate::replication::greeting::spoken;
use crate::replication::peer_memory::from_wire;
use crate::replication::peers::{Lane, Peers};
use crate::types::Endpoint;
use muster_lifecycle::replica::{ReplicaId, ReplicaTrouble};

const GREETING_TIMEOUT: Duration = Duration::from_millis(500);

/// The answer of a greeted replica.
#[derive(Debug, Clone)]
pub struct HelloAnswer {
    /// It has a vote or a log: it is part of a cluster already.
    pub initialized: bool,
    /// The store by which it knows this replica.
    pub known_store: Option<Uid>,
    /// It knows that this replica was removed.
    pub retired: bool,
    pub applied: u64,
    pub revision: u64,
    pub digest: String,
    /// Digests at recent round indexes, and the one of the moment.
    pub digests: Vec<(u64, Digest)>,
    pub version: String,
    pub levels: LevelRange,
    pub level: Level,
    pub store: Option<Uid>,
    pub members: MembersClaim,
    /// Why it takes no part or must not lead.
    pub trouble: Option<(ReplicaTrouble, String)>,
    /// Why it should not lead: its disk takes no writes. `None` if it may.
    pub cannot_write: Option<String>,
}

pub async fn greet(peers: &Peers, target: ReplicaId, endpoint: &Endpoint) -> Result<HelloAnswer, String> {
    let mut client = peers.client(target, endpoint, Lane::Request);
    let known = peers.memory.about(target);
    let answer = match tokio::time::timeout(GREETING_TIMEOUT, client.hello(peers.greet(target))).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return Err(describe(&status)),
        Err(_) => return Err(format!("no answer within {} ms", GREETING_TIMEOUT.as_millis())),
    };
    peers.guard().told(answer.level, &answer.raised_by).map_err(|outgrown| outgrown.to_string())?;
    peers.learn(&answer.heard);
    let told = answer.mark.as_ref().and_then(from_wire).map(|(_, told)| told);
    // A store that was never part of a vote or an acknowledgement is not remembered: it may still be replaced.
    if let (Some(known), Some(told)) = (known, told)
        && let Err(dispute) = peers.memory.answered(target, told, Some(known))
    {
        tracing::debug!(replica = %target, ?dispute, "a greeted replica is distrusted");
    }
    let applied_digest = u128::from_str_radix(&answer.digest, 16).ok().map(Digest);
    let digests = answer.digests.iter().filter_map(|at| Some((at.index, Digest(u128_from(&at.digest)?))));
    Ok(HelloAnswer {
        initialized: answer.initialized,
        known_store: u128_from(&answer.known_store).map(Uid),
        retired: answer.retired,
        applied: answer.applied,
        revision: answer.revision,
        digest: answer.digest,
        digests: digests.chain(applied_digest.map(|digest| (answer.applied, digest))).collect(),
        version: answer.version,
        levels: spoken(answer.level_min, answer.level_max),
        level: spoken(answer.level, answer.level).min,
        store: u128_from(&answer.store).map(Uid),
        members: MembersClaim {
            term: answer.members_term,
            index: answer.members_index,
            digest: Digest(u128_from(&answer.members_digest).unwrap_or_default()),
        },
        trouble: ReplicaTrouble::from_name(&answer.trouble).map(|trouble| (trouble, answer.trouble_detail)),
        cannot_write: (!answer.cannot_write.is_empty()).then_some(answer.cannot_write),
    })
}

/// The innermost cause: "connection refused" says more than "transport error".
fn describe(status: &tonic::Status) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

fn u128_from(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.try_into().ok()?))
}
