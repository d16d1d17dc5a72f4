//! The operators' door: reads, watches, writes, explanations, membership, backup.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use muster_lifecycle::command::{Command, OperatorOperation, Origin, Outcome, ReceiptEffect, RequestId};
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::replica::ReplicaId;
use muster_pki::HostPort;
use muster_pki::identity::{Identity, Role};
use muster_proto::manifest::CONFIG_NAME;
use muster_proto::operation::operation;
use muster_proto::status::from_rejection;
use muster_proto::v1;
use muster_proto::v1::member_request::Action;
use muster_proto::v1::operator_server::{Operator, OperatorServer};
use muster_proto::v1::write_response::Effect;
use muster_raft::membership::MembershipChange;
use muster_raft::peer_service::membership_status;
use muster_raft::proposer::ProposeError;
use muster_raft::replica::{Replica, RequestError};
use muster_raft::types::Endpoint;
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::door::DoorKind;
use crate::door::listener::Peer;
use crate::hearing::Hearing;
use crate::operator::collection::{LastHeard, Selection, render};
use crate::operator::explaining::{ExplainSubject, Explainer};
use crate::operator::overview;
use crate::operator::pulses::Pulses;
use crate::operator::view::View;
use crate::operator::watching;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Long enough for a snapshot of a million nodes.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(120);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Objects in one chunk of a list; an object is bounded, so a chunk is too.
const LIST_CHUNK_BYTES: usize = 256 * 1024;

pub struct OperatorService {
    replica: Replica,
    explainer: Option<Explainer>,
    last_heard: Option<Arc<LastHeard>>,
    hearing: Option<Hearing>,
    pulses: Option<Pulses>,
}

// === impl OperatorService ===

impl OperatorService {
    /// Without further parts the service can explain nothing, and shows heartbeat times as they are stored.
    pub fn new(replica: Replica) -> Self {
        Self { replica, explainer: None, last_heard: None, hearing: None, pulses: None }
    }

    #[must_use]
    pub fn explained_by(self, explainer: Explainer) -> Self {
        Self { explainer: Some(explainer), ..self }
    }

    /// A client that writes the status of a node vouches that it lives, as its agent would.
    #[must_use]
    pub fn vouching_to(self, hearing: Hearing) -> Self {
        Self { hearing: Some(hearing), ..self }
    }

    #[must_use]
    pub fn hearing(self, pulses: Pulses) -> Self {
        Self { pulses: Some(pulses), ..self }
    }

    #[must_use]
    pub fn dated_by(self, last_heard: Arc<LastHeard>) -> Self {
        Self { last_heard: Some(last_heard), ..self }
    }

    /// The service for tonic, with its message limits.
    pub fn into_server(self) -> OperatorServer<Self> {
        OperatorServer::new(self)
            .max_decoding_message_size(DoorKind::Client.limits().message_bytes)
            .max_encoding_message_size(DoorKind::Client.limits().message_bytes)
    }

    async fn ensure(&self, consistency: Option<v1::Consistency>) -> Result<(), Status> {
        let consistency = consistency.unwrap_or_default();
        if consistency.stale {
            return Ok(());
        }
        let deadline = Instant::now() + timeout(consistency.timeout_ms);
        self.replica.read_barrier(deadline).await.map_err(request_status)
    }

    async fn write_as(&self, user: &str, request: v1::WriteRequest) -> Result<v1::WriteResponse, Status> {
        let deadline = Instant::now() + timeout(request.timeout_ms);
        let (request_id, operation) =
            operation(request, Uid(rand::random())).map_err(|error| Status::invalid_argument(error.to_string()))?;
        // With an id of this replica's own, at least its retries towards the leader apply once.
        let request_id = request_id.unwrap_or_else(|| RequestId { client: rand::random(), sequence: 1 });
        let origin = Origin::Operator { user: user.into() };
        let (what, name) = (operation.label(), operation.object_name().unwrap_or_else(|| CONFIG_NAME.to_owned()));
        let vouches = matches!(operation, OperatorOperation::ReplaceNodeStatus { .. });
        let command = Command { origin, request: Some(request_id), operation: operation.into() };
        let settled = self.replica.write(command, deadline).await.map_err(request_status)?;
        match settled.outcome {
            Outcome::Done(receipt) => {
                if vouches {
                    self.vouch(&name);
                }
                let effect = effect(receipt.effect);
                tracing::info!(user, what, name, ?effect, revision = receipt.revision.0, "write");
                Ok(v1::WriteResponse { effect: effect.into(), revision: receipt.revision.0, name })
            }
            Outcome::Rejected(rejection) => Err(from_rejection(&rejection)),
        }
    }

    fn vouch(&self, node: &str) {
        let slot = self.replica.current().state.node(node).map(|node| node.slot);
        if let (Some(slot), Some(hearing)) = (slot, &self.hearing) {
            // A slot that has moved on meanwhile is no longer this node's.
            let _ = hearing.beat(slot);
        }
    }
}

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        reader(&request)?;
        let request = request.into_inner();
        let wanted = Wanted::parse(&request.kind, "", "", &request.namespace)?;
        self.ensure(request.consistency).await?;
        let current = self.replica.current();
        let object = match wanted {
            Wanted::View(view) => view.get(&current.state, &request.name, self.replica.feed().stamp())?,
            Wanted::Objects(selection) => {
                let object = selection.get(&current.state, &request.name).ok_or_else(|| {
                    let noun = request.kind.strip_suffix('s').unwrap_or(&request.kind);
                    Status::not_found(format!("{noun} {:?} not found", request.name))
                })?;
                render(&object, &current.state, self.last_heard.as_deref())
            }
        };
        Ok(Response::new(v1::GetResponse { object: to_bytes(&object), revision: current.state.revision().0 }))
    }

    type ListStream = BoxStream<'static, Result<v1::ListChunk, Status>>;

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        reader(&request)?;
        let request = request.into_inner();
        let selectors = (&request.label_selector, &request.field_selector);
        let wanted = Wanted::parse(&request.kind, selectors.0, selectors.1, &request.namespace)?;
        self.ensure(request.consistency).await?;
        let current = self.replica.current();
        let revision = current.state.revision().0;
        let limit = if request.limit > 0 { request.limit as usize } else { usize::MAX };
        Ok(Response::new(match wanted {
            Wanted::View(view) => {
                let views = view.list(&current.state, self.replica.feed().stamp());
                list_chunks(views.into_iter().take(limit), revision).boxed()
            }
            Wanted::Objects(selection) => {
                let objects = selection.objects(&current.state).into_iter().take(limit);
                let last_heard = self.last_heard.clone();
                let render = move |object| render(&object, &current.state, last_heard.as_deref());
                list_chunks(objects.map(render), revision).boxed()
            }
        }))
    }

    type WatchStream = BoxStream<'static, Result<v1::WatchEvent, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        reader(&request)?;
        let term = Peer::of(&request)?.term;
        let request = request.into_inner();
        let selectors = (&request.label_selector, &request.field_selector);
        let selection = match Wanted::parse(&request.kind, selectors.0, selectors.1, &request.namespace)? {
            Wanted::Objects(selection) => selection,
            Wanted::View(view) => return Err(view.refuse_watch()),
        };
        let from = request.from_revision.map(Revision);
        let events = watching::watch(self.replica.feed(), selection, from, self.last_heard.clone())?;
        Ok(Response::new(events.take_until(term.ended()).boxed()))
    }

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let identity = writer(&request)?;
        let written = self.write_as(&identity.user, request.into_inner()).await;
        if let Err(status) = &written {
            tracing::info!(user = identity.user, code = ?status.code(), why = status.message(), "write refused");
        }
        written.map(Response::new)
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        let identity = reader(&request)?;
        Ok(Response::new(overview::overview(&self.replica, identity.fleet.to_string()).await))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        reader(&request)?;
        let request = request.into_inner();
        let subject = ExplainSubject::parse(&request.kind, &request.namespace, &request.name)?;
        let Some(explainer) = &self.explainer else {
            return Err(Status::unimplemented("this replica hears no agents and can explain nothing"));
        };
        let deadline = Instant::now() + timeout(request.consistency.unwrap_or_default().timeout_ms);
        self.ensure(request.consistency).await?;
        let explanation = explainer.explain_by_leader(&subject, deadline).await?;
        Ok(Response::new(v1::ExplainResponse { explanation, revision: self.replica.current().state.revision().0 }))
    }

    type PulsesStream = BoxStream<'static, Result<v1::PulsesPart, Status>>;

    async fn pulses(&self, request: Request<v1::PulsesRequest>) -> Result<Response<Self::PulsesStream>, Status> {
        reader(&request)?;
        let Some(pulses) = &self.pulses else {
            return Err(Status::unimplemented("this replica hears no agents"));
        };
        let parts = pulses.parts(request.get_ref().first_hand).map(Ok);
        Ok(Response::new(stream::iter(parts).boxed()))
    }

    async fn member(&self, request: Request<v1::MemberRequest>) -> Result<Response<v1::MemberResponse>, Status> {
        let identity = writer(&request)?;
        let change = membership_change(request.into_inner())?;
        tracing::info!(user = identity.user, ?change, "membership change asked");
        let done = self.replica.change_membership(&change, Instant::now() + TIMEOUT_MAX).await;
        let message = done.map_err(|error| membership_status(&error))?;
        tracing::info!(user = identity.user, %message, "membership changed");
        Ok(Response::new(v1::MemberResponse { message }))
    }

    type BackupStream = BoxStream<'static, Result<v1::BackupChunk, Status>>;

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let identity = writer(&request)?;
        self.replica.read_barrier(Instant::now() + TIMEOUT_DEFAULT).await.map_err(request_status)?;
        let file = self.replica.backup(Instant::now() + BACKUP_TIMEOUT).await.map_err(Status::unavailable)?;
        tracing::info!(user = identity.user, bytes = file.len(), "backup");
        let chunks = file.stream().map(|chunk| match chunk {
            Ok(data) => Ok(v1::BackupChunk { data }),
            Err(error) => Err(Status::data_loss(error.to_string())),
        });
        Ok(Response::new(chunks.boxed()))
    }
}

/// The target of a read.
enum Wanted {
    Objects(Selection),
    View(View),
}

// === impl Wanted ===

impl Wanted {
    fn parse(kind: &str, label_selector: &str, field_selector: &str, namespace: &str) -> Result<Self, Status> {
        match View::named(kind) {
            Some(view) => view.without_selectors(label_selector, field_selector).map(Self::View),
            None => Selection::parse(kind, label_selector, field_selector, namespace).map(Self::Objects),
        }
    }
}

/// Renders as it goes, so that a large list is never in memory as text. Sends at least one chunk, to carry the
/// revision.
fn list_chunks(
    objects: impl Iterator<Item = Value> + Send,
    revision: u64,
) -> impl Stream<Item = Result<v1::ListChunk, Status>> + Send {
    let mut objects = objects.peekable();
    let mut begun = false;
    let chunks = std::iter::from_fn(move || {
        if begun && objects.peek().is_none() {
            return None;
        }
        begun = true;
        let mut chunk = v1::ListChunk { objects: Vec::new(), revision };
        let mut bytes = 0;
        while bytes < LIST_CHUNK_BYTES {
            let Some(object) = objects.next() else { break };
            let rendered = to_bytes(&object);
            bytes += rendered.len();
            chunk.objects.push(rendered);
        }
        Some(Ok(chunk))
    });
    stream::iter(chunks)
}

/// Operators and viewers may read.
fn reader<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    let identity = caller(request)?;
    match identity.kind {
        Role::Operator | Role::Viewer => Ok(identity),
        Role::Replica(_) | Role::Node(_) | Role::Aggregator(_) | Role::Canary(_) => Err(denied(&identity, "read here")),
        Role::Lapsed(_) | Role::Stranger => Err(denied(&identity, "read here")),
    }
}

/// Only operators may change anything.
fn writer<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    let identity = caller(request)?;
    match identity.kind {
        Role::Operator => Ok(identity),
        Role::Viewer | Role::Replica(_) | Role::Node(_) | Role::Aggregator(_) | Role::Canary(_) => {
            Err(denied(&identity, "change anything"))
        }
        Role::Lapsed(_) | Role::Stranger => Err(denied(&identity, "change anything")),
    }
}

fn caller<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    Peer::of(request).map(|caller| caller.identity)
}

fn denied(identity: &Identity, what: &str) -> Status {
    tracing::warn!(%identity, what, "denied");
    Status::permission_denied(format!("{identity} may not {what}: it takes a certificate of group operators"))
}

fn timeout(asked_ms: u32) -> Duration {
    if asked_ms == 0 { TIMEOUT_DEFAULT } else { Duration::from_millis(u64::from(asked_ms)).min(TIMEOUT_MAX) }
}

fn to_bytes(object: &Value) -> bytes::Bytes {
    object.to_string().into()
}

fn effect(effect: ReceiptEffect) -> Effect {
    match effect {
        ReceiptEffect::Created => Effect::Created,
        ReceiptEffect::Changed => Effect::Changed,
        ReceiptEffect::Unchanged => Effect::Unchanged,
        ReceiptEffect::Deleted => Effect::Deleted,
    }
}

fn membership_change(request: v1::MemberRequest) -> Result<MembershipChange, Status> {
    let action = request.action.ok_or_else(|| Status::invalid_argument("action: is missing"))?;
    Ok(match action {
        Action::Add(add) => {
            require_id("add.id", add.id)?;
            let endpoint = Endpoint {
                peer: require_address("add.peer", add.peer)?,
                agent: require_address("add.agent", add.agent)?,
                client: require_address("add.client", add.client)?,
            };
            MembershipChange::Add { id: ReplicaId(add.id), endpoint }
        }
        Action::Promote(id) => MembershipChange::Promote { id: ReplicaId(id) },
        Action::Remove(id) => MembershipChange::Remove { id: ReplicaId(id) },
        Action::Transfer(0) => MembershipChange::Transfer { to: None },
        Action::Transfer(id) => MembershipChange::Transfer { to: Some(ReplicaId(id)) },
    })
}

fn require_id(field: &str, id: u64) -> Result<(), Status> {
    if id == 0 { Err(Status::invalid_argument(format!("{field}: must be 1 or more"))) } else { Ok(()) }
}

fn require_address(field: &str, address: String) -> Result<String, Status> {
    match address.parse::<HostPort>() {
        Ok(_) => Ok(address),
        Err(error) => Err(Status::invalid_argument(format!("{field}: {error}"))),
    }
}

/// A code that clients retry wherever another attempt may succeed. A full disk without a successor stays full.
fn request_status(error: RequestError) -> Status {
    let text = error.to_string();
    match error {
        RequestError::Refused(ProposeError::Exhausted(_)) => Status::resource_exhausted(text),
        RequestError::Denied(_) => Status::permission_denied(text),
        RequestError::NoQuorum(_) | RequestError::Forwarding(_) | RequestError::TurnedAway(_) => {
            Status::unavailable(text)
        }
        RequestError::Refused(
            ProposeError::Overloaded(_)
            | ProposeError::HandingOver(_)
            | ProposeError::NotLeader { .. }
            | ProposeError::Unknown
            | ProposeError::Stopped,
        ) => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_write_that_found_no_room_may_be_sent_again_and_one_that_is_denied_may_not() {
        let cases = [
            (ProposeError::Overloaded("busy".into()).into(), Code::Unavailable),
            (ProposeError::HandingOver("full".into()).into(), Code::Unavailable),
            (ProposeError::Exhausted("full".into()).into(), Code::ResourceExhausted),
            (RequestError::TurnedAway("not a member".into()), Code::Unavailable),
            (RequestError::Denied("not yours".into()), Code::PermissionDenied),
        ];
        for (error, code) in cases {
            assert_eq!(request_status(error).code(), code);
        }
    }
}
