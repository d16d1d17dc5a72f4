//! Hello to another replica: is it there, what does it know, do both belong together.

use std::time::Duration;

use muster_lifecycle::meta::Uid;
use muster_lifecycle::table::Digest;

use crate::replication::peers::{Lane, Peers};
use crate::types::Endpoint;
use muster_lifecycle::replica::ReplicaId;

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
    pub digests: Vec<(u64, Digest)>,
    pub version: String,
    /// Why it should not lead: its disk takes no writes. `None` if it may.
    pub cannot_write: Option<String>,
}

pub async fn greet(peers: &Peers, target: ReplicaId, endpoint: &Endpoint) -> Result<HelloAnswer, String> {
    let mut client = peers.client(target, endpoint, Lane::Request);
    let answer = match tokio::time::timeout(GREETING_TIMEOUT, client.hello(peers.greet(target))).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return Err(describe(&status)),
        Err(_) => return Err(format!("no answer within {} ms", GREETING_TIMEOUT.as_millis())),
    };
    Ok(HelloAnswer {
        initialized: answer.initialized,
        known_store: u128_from(&answer.known_store).map(Uid),
        retired: answer.retired,
        applied: answer.applied,
        revision: answer.revision,
        digest: answer.digest,
        digests: answer.digests.iter().filter_map(|at| Some((at.index, Digest(u128_from(&at.digest)?)))).collect(),
        version: answer.version,
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
