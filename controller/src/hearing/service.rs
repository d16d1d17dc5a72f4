//! The service that replicas ask about the agents they hear, on the peers' door beside raft's own messages.
//!
//! Callers are checked as for raft: the certificate proves the replica, the greeting names fleet and stores. A pull is
//! answered from this replica's own receipts only. The handed-in [`Claims`] and explainer answer the rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::pulse_server::{Pulse, PulseServer};
use muster_pulse::digest::{Boot, DigestId, DigestRequest, PART_MAX};
use muster_pulse::outbox::{DigestOutbox, DigestParts};
use muster_raft::greeting::ProvenReplica;
use muster_raft::replica::Replica;
use tonic::{Request, Response, Status};

use crate::door::DoorKind;
use crate::hearing::Hearing;

/// Decides which replica holds which node's session. Asked of the leader.
pub trait Claims: Send + Sync + 'static {
    /// `from` is the replica that the caller's certificate proves.
    fn claim(&self, from: ReplicaId, request: v1::ClaimRequest) -> Result<v1::ClaimResponse, Status>;
}

/// Explains why a node or a zone is in the state it is in. Asked of the leader.
#[tonic::async_trait]
pub trait Explains: Send + Sync + 'static {
    /// The explanation as JSON.
    async fn explain(&self, kind: &str, namespace: &str, name: &str) -> Result<Bytes, Status>;
}

/// The service for tonic, with its message limits. The layer that terminates TLS puts a [`ProvenReplica`] into each
/// request.
pub fn pulse_service(
    replica: Replica,
    hearing: Hearing,
    claims: Arc<dyn Claims>,
    explains: Arc<dyn Explains>,
) -> PulseServer<PulseService> {
    let limit = DoorKind::Peer.limits().message_bytes;
    PulseServer::new(PulseService { replica, hearing, claims, explains, outboxes: Mutex::default() })
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit)
}

pub struct PulseService {
    replica: Replica,
    hearing: Hearing,
    claims: Arc<dyn Claims>,
    explains: Arc<dyn Explains>,
    /// One outbox per member that pulls.
    outboxes: Mutex<BTreeMap<ReplicaId, DigestOutbox>>,
}

// === impl PulseService ===

impl PulseService {
    fn admit(&self, proven: Option<ProvenReplica>, greeting: Option<&v1::Greeting>) -> Result<ReplicaId, Status> {
        Ok(self.replica.admit(proven, greeting)?)
    }

    fn answer(&self, from: ReplicaId, request: DigestRequest) -> Result<DigestParts, Status> {
        let members = self.replica.members();
        if !members.contains_key(&from) {
            let unknown = format!("replica {from} is not a member here, or not yet; ask again in a moment");
            return Err(Status::failed_precondition(unknown));
        }
        let mut outboxes = self.outboxes.lock().unwrap_or_else(PoisonError::into_inner);
        outboxes.retain(|id, _| members.contains_key(id));
        if request.applied.is_some_and(|applied| self.hearing.is_own(applied.boot)) {
            self.hearing.acknowledged_by(from);
        }
        let outbox = outboxes.entry(from).or_insert_with(|| self.hearing.outbox());
        Ok(outbox.answer(request, self.hearing.tick()))
    }
}

#[tonic::async_trait]
impl Pulse for PulseService {
    type PullStream = BoxStream<'static, Result<v1::DigestPart, Status>>;

    async fn pull(&self, request: Request<v1::PullRequest>) -> Result<Response<Self::PullStream>, Status> {
        let proven = proven(&request);
        let request = request.into_inner();
        let from = self.admit(proven, request.greeting.as_ref())?;
        let parts = self.answer(from, asked(&request))?;
        Ok(Response::new(in_messages(parts, self.hearing.wellbeing()).boxed()))
    }

    async fn claim(&self, request: Request<v1::ClaimRequest>) -> Result<Response<v1::ClaimResponse>, Status> {
        let proven = proven(&request);
        let request = request.into_inner();
        let from = self.admit(proven, request.greeting.as_ref())?;
        self.claims.claim(from, request).map(Response::new)
    }

    async fn explain(
        &self,
        request: Request<v1::PeerExplainRequest>,
    ) -> Result<Response<v1::PeerExplainResponse>, Status> {
        let proven = proven(&request);
        let request = request.into_inner();
        self.admit(proven, request.greeting.as_ref())?;
        let explanation = self.explains.explain(&request.kind, &request.namespace, &request.name).await?;
        Ok(Response::new(v1::PeerExplainResponse { explanation }))
    }
}

fn proven<T>(request: &Request<T>) -> Option<ProvenReplica> {
    request.extensions().get::<ProvenReplica>().copied()
}

fn asked(request: &v1::PullRequest) -> DigestRequest {
    let name = |name: &v1::DigestName| DigestId { boot: Boot(name.boot), sequence: name.sequence };
    DigestRequest { asked: request.asked, applied: request.applied.as_ref().map(name) }
}

/// Makes each part when the one before has been taken, so that a table of a million nodes is never held twice.
fn in_messages(
    parts: DigestParts,
    wellbeing: v1::Wellbeing,
) -> impl futures::Stream<Item = Result<v1::DigestPart, Status>> + Send {
    stream::unfold((parts, Some(wellbeing)), |(mut parts, wellbeing)| async move {
        let mut buffer = Vec::new();
        parts.next_into(&mut buffer).then(|| {
            debug_assert!(buffer.len() <= PART_MAX);
            (Ok(v1::DigestPart { data: buffer.into(), wellbeing }), (parts, None))
        })
    })
}
