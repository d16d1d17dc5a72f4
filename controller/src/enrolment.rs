//! Enrolment of machines: a certificate in exchange for a token, and a newer certificate in exchange for an old one.
//!
//! ```text
//!   Join:   token --> is it ours, and open? --> EnrolNode (the token is used up, the key recorded) --> sign
//!   Renew:  certificate --> does its key count? --> RenewCredential (the new key recorded) --> sign
//! ```
//! Signing comes last: a certificate exists only for a key that the whole cluster knows of. A machine that lost the
//! answer asks again with the same key and gets it again. A request that the state already rules out is never proposed,
//! so that a stranger cannot fill the log. A few refusals at a time become events and log lines. Strangers have a count
//! of their own, so that a crowd of them cannot hide the refusal of a caller with a certificate.

pub mod signer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant, SystemTime};

use muster_lifecycle::command::{AgentOperation, Outcome};
use muster_lifecycle::credential::{Distrust, Joining};
use muster_lifecycle::name;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_pki::identity::{Identity, Role};
use muster_proto::status::from_rejection;
use muster_proto::token::Token;
use muster_proto::v1;
use muster_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::door::DoorKind;
use crate::door::listener::Peer;
use crate::observe::logging::Gate;
use crate::session::AgentWrites;
use crate::session::figures::{RefusalReason, SessionFigures};

use self::signer::{CsrKey, Signer};

/// Any machine may ask, so requests are short: a token, a name and a certificate request stay far below this.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// How long a write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(12);

/// The service for tonic, with its message limits.
pub fn enrolment_service(
    writes: AgentWrites,
    figures: Arc<SessionFigures>,
    signer: Result<Arc<Signer>, signer::Missing>,
) -> EnrolmentServer<EnrolmentService> {
    let (strangers, nodes) = (Gate::of_refusals(), Gate::of_refusals());
    EnrolmentServer::new(EnrolmentService { writes, figures, signer, strangers, nodes })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(DoorKind::Agent.limits().message_bytes)
}

pub struct EnrolmentService {
    writes: AgentWrites,
    figures: Arc<SessionFigures>,
    signer: Result<Arc<Signer>, signer::Missing>,
    /// Limits the log lines and events about machines that ask to join.
    strangers: Gate,
    /// Limits the log lines and events about callers with a certificate.
    nodes: Gate,
}

/// A machine that asks to join, as read from its request.
struct Applicant {
    token: Token,
    node: Text,
    key: CsrKey,
    remote: SocketAddr,
}

// === impl EnrolmentService ===

impl EnrolmentService {
    fn signer(&self) -> Result<&Arc<Signer>, Status> {
        self.signer.as_ref().map_err(|missing| Status::failed_precondition(missing.to_string()))
    }

    async fn enrol(&self, applicant: &Applicant, now: SystemTime) -> Result<v1::Certified, Status> {
        let signer = self.signer()?;
        let (key, node) = (&applicant.key, &applicant.node);
        let signed = signer.term(key, now);
        if let Err(distrust) = self.admit(applicant, signer).await? {
            return Err(self.refuse(&self.strangers, node, applicant.remote, &distrust));
        }
        let (token, secret) = (Text::from(applicant.token.id.as_str()), applicant.token.hash());
        let operation = AgentOperation::EnrolNode { node: node.clone(), token, secret, signed };
        self.commit(operation, node, (applicant.remote, &self.strangers)).await?;
        tracing::info!(%node, remote = %applicant.remote, token = applicant.token.id, "node enrolled");
        signer.certify(node, key, &signed).map_err(internal)
    }

    /// This replica's state may be old, so it refuses no machine before it has caught up.
    async fn admit(&self, applicant: &Applicant, signer: &Signer) -> Result<Result<(), Distrust>, Status> {
        let Applicant { token, node, key, .. } = applicant;
        if token.pin != signer.pin() {
            return Ok(Err(Distrust::ForeignToken { id: Text::from(token.id.as_str()) }));
        }
        let joining = Joining { token: &token.id, secret: token.hash(), node, key: key.print };
        let feed = self.writes.replica().feed();
        let look = |state: &State| state.admits_joining(&joining, feed.stamp().cluster).map(|_| ());
        let admitted = self.writes.look_surely(look, Result::is_ok).await;
        admitted.map_err(|(_, behind)| Status::unavailable(behind.to_string()))
    }

    async fn renew_for(&self, node: &Text, peer: &Peer, csr: &[u8], late: bool) -> Result<v1::Certified, Status> {
        let signer = self.signer()?;
        let key = signer::read_csr(csr).map_err(unreadable)?;
        let from = peer.identity.key;
        let admitted = self.writes.admits_key(node, &from).await;
        if let Err(distrust) = admitted.map_err(|behind| Status::unavailable(behind.to_string()))? {
            return Err(self.refuse(&self.nodes, node, peer.remote, &distrust));
        }
        // A node that renews again and again has to wait, as does one that reports again and again.
        let wait = |_| Status::resource_exhausted("too many requests of this node; wait a moment");
        self.writes.spend(node).map_err(wait)?;
        let signed = signer.term(&key, peer.validity.clock.now());
        let operation = AgentOperation::RenewCredential { node: node.clone(), from, signed, late };
        self.commit(operation, node, (peer.remote, &self.nodes)).await?;
        if late {
            tracing::warn!(%node, remote = %peer.remote, "an expired certificate was renewed");
        } else {
            tracing::info!(%node, remote = %peer.remote, "certificate renewed");
        }
        signer.certify(node, &key, &signed).map_err(internal)
    }

    /// A refusal is reported through `gate`.
    async fn commit(
        &self,
        operation: AgentOperation,
        node: &Text,
        (remote, gate): (SocketAddr, &Gate),
    ) -> Result<(), Status> {
        let written = self.writes.submit(node, operation, Instant::now() + WRITE_LIMIT).await;
        match written.map_err(|error| Status::unavailable(error.to_string()))?.outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Rejected(Rejection::Distrusted(distrust)) => Err(self.refuse(gate, node, remote, &distrust)),
            Outcome::Rejected(rejection) => Err(from_rejection(&rejection)),
        }
    }

    /// Reports the refusal to the caller and, a few at a time, to the log and the operators.
    fn refuse(&self, gate: &Gate, node: &Text, remote: SocketAddr, distrust: &Distrust) -> Status {
        self.figures.refuse(RefusalReason::Identity);
        if let Some(unsaid) = gate.pass(StdInstant::now()) {
            let reason = distrust.reason();
            tracing::warn!(%node, %remote, reason, why = %distrust, unsaid, "enrolment denied");
            self.tell_operators(node, remote, distrust);
        }
        Status::permission_denied(distrust.to_string())
    }

    fn tell_operators(&self, node: &Text, remote: SocketAddr, why: &Distrust) {
        let operation = AgentOperation::NoteRefusal { node: node.clone(), remote, why: Box::new(why.clone()) };
        let (writes, node) = (self.writes.clone(), node.clone());
        tokio::spawn(async move {
            if let Err(error) = writes.submit(&node, operation, Instant::now() + WRITE_LIMIT).await {
                tracing::warn!(%error, "a refusal could not be told as an event");
            }
        });
    }

    fn denied(&self, identity: &Identity, what: &str) -> Status {
        self.figures.refuse(RefusalReason::Identity);
        if let Some(unsaid) = self.nodes.pass(StdInstant::now()) {
            tracing::warn!(%identity, what, unsaid, "denied");
        }
        Status::permission_denied(format!("{identity} may not {what}"))
    }
}

#[tonic::async_trait]
impl Enrolment for EnrolmentService {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::Certified>, Status> {
        let peer = Peer::of(&request)?;
        if peer.identity.kind != Role::Stranger {
            return Err(self.denied(&peer.identity, "join: it has a certificate; renew that, or join without it"));
        }
        let applicant = Applicant::read(request.into_inner(), peer.remote)?;
        self.enrol(&applicant, peer.validity.clock.now()).await.map(Response::new)
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::Certified>, Status> {
        let peer = Peer::of(&request)?;
        let (node, late) = match &peer.identity.kind {
            Role::Node(node) => (Text::from(node.as_str()), false),
            Role::Lapsed(node) => (Text::from(node.as_str()), true),
            Role::Stranger => return Err(Status::unauthenticated("no client certificate: there is nothing to renew")),
            Role::Aggregator(_) | Role::Canary(_) | Role::Replica(_) | Role::Operator | Role::Viewer => {
                return Err(self.denied(&peer.identity, "renew here: it is no node"));
            }
        };
        self.renew_for(&node, &peer, &request.into_inner().csr, late).await.map(Response::new)
    }
}

// === impl Applicant ===

impl Applicant {
    fn read(request: v1::JoinRequest, remote: SocketAddr) -> Result<Self, Status> {
        let wrong = |field: &str, why: String| Status::invalid_argument(format!("{field}: {why}"));
        let token = request
            .token
            .parse()
            .map_err(|error: muster_proto::token::TokenError| wrong("token", error.to_string()))?;
        name::host_name(&request.node).map_err(|rule| wrong("node", rule.to_string()))?;
        let key = signer::read_csr(&request.csr).map_err(unreadable)?;
        Ok(Self { token, node: request.node.into(), key, remote })
    }
}

fn unreadable(error: signer::CsrError) -> Status {
    Status::invalid_argument(format!("csr: {error}"))
}

fn internal(error: muster_pki::SigningError) -> Status {
    tracing::error!(%error, "cannot sign");
    Status::internal(error.to_string())
}
