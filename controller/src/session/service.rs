//! The agents' door: the identity of this replica, one node's session, and the streams of aggregators.
//!
//! The caller's role is decided here, by its certificate; the session decides everything after that. A caller without a
//! certificate, or with one that is no longer good, is sent away before a byte of the request is read.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use muster_pki::identity::{Identity, Role};
use muster_proto::v1;
use muster_proto::v1::agent_server::{Agent, AgentServer};
use muster_raft::replica::Replica;
use tokio::sync::mpsc;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

use crate::door::DoorKind;
use crate::door::listener::Peer;
use crate::observe::logging::Gate;
use crate::session::figures::{RefusalReason, SessionFigures};
use crate::session::{Opener, Sessions};

/// The service for tonic, with its message limits.
pub fn agent_service(
    replica: Replica,
    sessions: Sessions,
) -> InterceptedService<AgentServer<AgentService>, CertificateGate> {
    let gate = CertificateGate { figures: Arc::clone(sessions.figures()), told: Arc::new(Gate::of_refusals()) };
    let service = AgentServer::new(AgentService { replica, sessions, told: Gate::of_refusals() })
        .max_decoding_message_size(DoorKind::Agent.limits().message_bytes)
        .max_encoding_message_size(DoorKind::Agent.limits().message_bytes);
    InterceptedService::new(service, gate)
}

pub struct AgentService {
    replica: Replica,
    sessions: Sessions,
    told: Gate,
}

/// Refuses callers that were let in for other calls than those of this service: without a certificate, or expired.
#[derive(Clone)]
pub struct CertificateGate {
    figures: Arc<SessionFigures>,
    told: Arc<Gate>,
}

// === impl AgentService ===

impl AgentService {
    fn denied(&self, identity: &Identity, what: &str) -> Status {
        self.sessions.figures().refuse(RefusalReason::Identity);
        if let Some(unsaid) = self.told.pass(Instant::now()) {
            tracing::warn!(%identity, what, unsaid, "denied");
        }
        Status::permission_denied(format!("{identity} may not {what}"))
    }
}

// === impl CertificateGate ===

impl Interceptor for CertificateGate {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let peer = Peer::of(&request)?;
        let why = match &peer.identity.kind {
            Role::Lapsed(_) => "the certificate has expired: renew it first",
            Role::Stranger => "no client certificate: join with a token first",
            Role::Node(_) | Role::Aggregator(_) | Role::Canary(_) | Role::Replica(_) => return Ok(request),
            Role::Operator | Role::Viewer => return Ok(request),
        };
        self.figures.refuse(RefusalReason::Identity);
        if let Some(unsaid) = self.told.pass(Instant::now()) {
            tracing::warn!(identity = %peer.identity, remote = %peer.remote, unsaid, "denied: not authenticated");
        }
        Err(Status::unauthenticated(why))
    }
}

#[tonic::async_trait]
impl Agent for AgentService {
    async fn who_is(&self, request: Request<v1::WhoIsRequest>) -> Result<Response<v1::WhoIsResponse>, Status> {
        let identity = &Peer::of(&request)?.identity;
        match identity.kind {
            Role::Node(_) | Role::Aggregator(_) | Role::Canary(_) => Ok(Response::new(v1::WhoIsResponse {
                fleet: identity.fleet.to_string(),
                replica: self.replica.id().0,
                has_leader: self.replica.leader().is_some(),
            })),
            Role::Replica(_) | Role::Operator | Role::Viewer | Role::Lapsed(_) | Role::Stranger => {
                Err(self.denied(identity, "ask here: it is no agent"))
            }
        }
    }

    type SessionStream = BoxStream<'static, Result<v1::ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = Peer::of(&request)?;
        match &peer.identity.kind {
            Role::Node(node) => {
                let told = self.sessions.serve_node(node, opened(&peer), request.into_inner());
                Ok(Response::new(in_order(told).boxed()))
            }
            Role::Aggregator(_) | Role::Canary(_) | Role::Replica(_) | Role::Operator | Role::Viewer => {
                Err(self.denied(&peer.identity, "hold a node's session: it is no node"))
            }
            Role::Lapsed(_) | Role::Stranger => Err(self.denied(&peer.identity, "hold a node's session")),
        }
    }

    type CarryStream = BoxStream<'static, Result<v1::AggregatorReply, Status>>;

    async fn carry(
        &self,
        request: Request<Streaming<v1::AggregatorMessage>>,
    ) -> Result<Response<Self::CarryStream>, Status> {
        let peer = Peer::of(&request)?;
        match &peer.identity.kind {
            Role::Aggregator(name) => {
                let told = self.sessions.serve_aggregator(name.clone(), opened(&peer), request.into_inner());
                Ok(Response::new(in_order(told).boxed()))
            }
            Role::Node(_) | Role::Canary(_) | Role::Replica(_) | Role::Operator | Role::Viewer => {
                Err(self.denied(&peer.identity, "carry nodes: it is no aggregator"))
            }
            Role::Lapsed(_) | Role::Stranger => Err(self.denied(&peer.identity, "carry nodes")),
        }
    }
}

fn opened(peer: &Peer) -> Opener {
    Opener {
        fleet: peer.identity.fleet.as_str().into(),
        remote: peer.remote,
        key: peer.identity.key,
        certificate: peer.validity.clone(),
    }
}

fn in_order<T>(mut told: mpsc::Receiver<Result<Box<T>, Status>>) -> impl Stream<Item = Result<T, Status>> {
    stream::poll_fn(move |context| told.poll_recv(context)).map(|told| told.map(|message| *message))
}
