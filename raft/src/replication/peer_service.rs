//! The peers' door: serves raft's messages and the requests of followers to the leader.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::peer_server::{Peer, PeerServer};
use openraft::EntryPayload;
use openraft::alias::SnapshotOf;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest};
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status, Streaming};

use crate::membership::MembershipError;
use crate::replica::{NOT_FORWARDED, Replica};
use crate::replication::codec::{decode, encode, not_understood};
use crate::replication::greeting::{GreetingRefusal, ProvenReplica, store_bytes};
use crate::replication::network::SnapshotAnnouncement;
use crate::replication::peers::PEER_MESSAGE_MAX;
use crate::replication::refusal::{propose_status, request_status};
use crate::storage::snapshot_store::{SnapshotError, SnapshotFile};
use crate::types::TypeConfig;
use crate::write::encoded::EncodedCommand;
use crate::write::forwarder::CALL_COMMANDS_MAX;
use crate::write::proposer::{Committed, WriterClass};
use muster_lifecycle::replica::ReplicaId;

/// The longest that a forwarded request may keep the leader busy, whatever the caller asks for.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(60);
const MEMBERSHIP_TIMEOUT: Duration = Duration::from_secs(20);
/// A sender that stalls longer than this has its snapshot dropped.
const SNAPSHOT_CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// The service for tonic, with its message limits.
pub fn peer_service(replica: Replica) -> PeerServer<PeerService> {
    PeerServer::new(PeerService { replica, refused: Mutex::default() })
        .max_decoding_message_size(PEER_MESSAGE_MAX)
        .max_encoding_message_size(PEER_MESSAGE_MAX)
}

pub struct PeerService {
    replica: Replica,
    /// The last reason why each replica was refused: many heartbeats refused in a second are worth one line.
    refused: Mutex<BTreeMap<ReplicaId, GreetingRefusal>>,
}

// === impl PeerService ===

impl PeerService {
    fn admit(&self, proven: Option<ProvenReplica>, greeting: Option<&v1::Greeting>) -> Result<ReplicaId, Status> {
        self.replica.admit(proven, greeting).map_err(|refusal| self.refuse(proven, refusal))
    }

    fn refuse(&self, proven: Option<ProvenReplica>, refusal: GreetingRefusal) -> Status {
        let from = proven.map_or_else(ReplicaId::default, |proven| proven.0);
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.insert(from, refusal.clone()).as_ref() != Some(&refusal) {
            tracing::warn!(%refusal, %from, "refused a message from a replica");
        }
        refusal.into()
    }

    fn admit_raft(&self, request: Request<v1::RaftMessage>) -> Result<Bytes, Status> {
        let proven = proven(&request);
        let message = request.into_inner();
        self.admit(proven, message.greeting.as_ref())?;
        Ok(message.payload)
    }

    async fn propose_within(&self, timeout_ms: u32, drafts: Vec<EncodedCommand>) -> Result<Vec<Committed>, Status> {
        let limit = Duration::from_millis(u64::from(timeout_ms)).min(REQUEST_TIMEOUT_MAX);
        let proposed = timeout(limit, self.replica.proposer.propose_all(drafts)).await;
        proposed.map_err(|_| Status::deadline_exceeded("not committed in time"))?.map_err(propose_status)
    }

    /// Each class of writers has room of its own, so each is proposed by itself.
    async fn propose_groups(
        &self,
        timeout_ms: u32,
        groups: BTreeMap<WriterClass, Vec<EncodedCommand>>,
    ) -> BTreeMap<WriterClass, Result<std::vec::IntoIter<Committed>, Status>> {
        let each = groups
            .into_iter()
            .map(async |(class, drafts)| (class, self.propose_within(timeout_ms, drafts).await.map(Vec::into_iter)));
        futures::future::join_all(each).await.into_iter().collect()
    }

    async fn receive_snapshot(
        &self,
        announced: &SnapshotAnnouncement,
        mut chunks: Streaming<v1::SnapshotChunk>,
    ) -> Result<SnapshotFile, Status> {
        let mut receiver = self.replica.snapshots.receive().map_err(storage)?;
        loop {
            let chunk = timeout(SNAPSHOT_CHUNK_TIMEOUT, chunks.message())
                .await
                .map_err(|_| Status::deadline_exceeded("the snapshot stalled"))??;
            let Some(chunk) = chunk else { break };
            receiver = blocking(move || receiver.write(&chunk.data).map(|()| receiver)).await?;
        }
        let file = blocking(move || receiver.finish()).await?;
        if file.log_id() != announced.last_log_id {
            return Err(Status::data_loss("the snapshot is not the one that was announced"));
        }
        Ok(file)
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn hello(&self, request: Request<v1::Greeting>) -> Result<Response<v1::HelloResponse>, Status> {
        let proven = proven(&request);
        let greeting = request.into_inner();
        let replica = &self.replica;
        let belonging = replica.peers.identity.check_belonging(proven, &greeting);
        belonging.map_err(|refusal| self.refuse(proven, refusal))?;
        let current = replica.current();
        let known = current.state.replicas().get(&ReplicaId(greeting.from));
        let metrics = replica.raft.metrics().borrow_watched().clone();
        Ok(Response::new(v1::HelloResponse {
            id: replica.id().0,
            store: store_bytes(replica.info.store_id),
            initialized: metrics.last_log_index.is_some() || metrics.current_term > 0,
            known_store: known.map_or_else(Bytes::new, |known| store_bytes(known.store)),
            retired: known.is_some_and(|known| known.retired),
            leader: metrics.current_leader.map(|leader| leader.0),
            term: metrics.current_term,
            applied: current.applied_index(),
            revision: current.state.revision().0,
            digest: current.state.digest().to_string(),
            version: replica.version.to_owned(),
            digests: replica.feed().digests().into_iter().map(digest_at).collect(),
            cannot_write: replica.cannot_lead().unwrap_or_default(),
        }))
    }

    async fn append(&self, request: Request<v1::RaftMessage>) -> Result<Response<v1::RaftReply>, Status> {
        let rpc: AppendEntriesRequest<TypeConfig> = decode("append", &self.admit_raft(request)?)?;
        // Nothing of it is acknowledged yet, so refusing is safe; running into a full disk would not be. The first
        // entry of a new leader is small and fits into the reserve; without it not even reads would be served.
        if rpc.entries.iter().any(|entry| matches!(entry.payload, EntryPayload::Normal(_))) {
            self.replica.capacity.check().map_err(|full| Status::resource_exhausted(full.to_string()))?;
        }
        reply(&self.replica.raft.append_entries(rpc).await.map_err(stopped)?)
    }

    async fn vote(&self, request: Request<v1::RaftMessage>) -> Result<Response<v1::RaftReply>, Status> {
        let rpc = decode("vote", &self.admit_raft(request)?)?;
        reply(&self.replica.raft.vote(rpc).await.map_err(stopped)?)
    }

    async fn pre_vote(&self, request: Request<v1::RaftMessage>) -> Result<Response<v1::RaftReply>, Status> {
        let rpc = decode("pre-vote", &self.admit_raft(request)?)?;
        reply(&self.replica.raft.pre_vote(rpc).await.map_err(stopped)?)
    }

    async fn transfer_leader(&self, request: Request<v1::RaftMessage>) -> Result<Response<v1::RaftReply>, Status> {
        let rpc: TransferLeaderRequest<TypeConfig> = decode("leader transfer", &self.admit_raft(request)?)?;
        // A replica that cannot write must not lead, not even when it is asked to.
        if *rpc.to_node_id() == self.replica.id()
            && let Some(why) = self.replica.cannot_lead()
        {
            return Err(Status::failed_precondition(why));
        }
        reply(&self.replica.raft.handle_transfer_leader(rpc).await.map_err(stopped)?)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::SnapshotChunk>>,
    ) -> Result<Response<v1::RaftReply>, Status> {
        let proven = proven(&request);
        let mut chunks = request.into_inner();
        let first = chunks.message().await?.ok_or_else(|| Status::invalid_argument("the snapshot stream is empty"))?;
        self.admit(proven, first.greeting.as_ref())?;
        let announced: SnapshotAnnouncement = decode("snapshot announcement", &first.header)?;
        let file = self.receive_snapshot(&announced, chunks).await?;
        let meta = file.header().meta().map_err(storage)?;
        let snapshot: SnapshotOf<TypeConfig, SnapshotFile> = openraft::Snapshot { meta, snapshot: file };
        reply(&self.replica.raft.install_full_snapshot(announced.vote, snapshot).await.map_err(stopped)?)
    }

    async fn propose(&self, request: Request<v1::ProposeRequest>) -> Result<Response<v1::ProposeResponse>, Status> {
        let proven = proven(&request);
        let request = request.into_inner();
        let from = self.admit(proven, request.greeting.as_ref())?;
        if request.commands.len() > CALL_COMMANDS_MAX {
            let text = format!("{} commands in one call; at most {CALL_COMMANDS_MAX}", request.commands.len());
            return Err(Status::invalid_argument(text));
        }
        let mut groups = BTreeMap::<WriterClass, Vec<EncodedCommand>>::new();
        let take = |command| {
            let draft = read_draft(command, from)?;
            let class = WriterClass::of(draft.command());
            groups.entry(class).or_default().push(draft);
            Ok(class)
        };
        let taken: Vec<Result<WriterClass, Status>> = request.commands.into_iter().map(take).collect();
        let mut committed = self.propose_groups(request.timeout_ms, groups).await;
        let mut next = |class| match committed.get_mut(&class) {
            Some(Ok(committed)) => committed.next().ok_or_else(|| Status::internal("a command was left out")),
            Some(Err(status)) => Err(status.clone()),
            None => Err(Status::internal("a command was left out")),
        };
        let answers = taken.into_iter().map(|taken| answer(taken.and_then(&mut next))).collect();
        Ok(Response::new(v1::ProposeResponse { answers }))
    }

    async fn read_index(
        &self,
        request: Request<v1::ReadIndexRequest>,
    ) -> Result<Response<v1::ReadIndexResponse>, Status> {
        let proven = proven(&request);
        self.admit(proven, request.get_ref().greeting.as_ref())?;
        let index = self.replica.read_index_as_leader().await.map_err(request_status)?;
        Ok(Response::new(v1::ReadIndexResponse { index }))
    }

    async fn change_membership(
        &self,
        request: Request<v1::MembershipRequest>,
    ) -> Result<Response<v1::MembershipResponse>, Status> {
        let proven = proven(&request);
        let request = request.into_inner();
        self.admit(proven, request.greeting.as_ref())?;
        let change = decode("membership change", &request.change)?;
        let deadline = Instant::now() + MEMBERSHIP_TIMEOUT;
        let done = self.replica.change_as_leader(&change, deadline).await;
        let message = done.map_err(|error| membership_status(&error))?;
        Ok(Response::new(v1::MembershipResponse { message }))
    }
}

/// A forwarded command, if `from` may forward it.
fn read_draft(encoded: Bytes, from: ReplicaId) -> Result<EncodedCommand, Status> {
    let draft = EncodedCommand::decode(encoded).map_err(|error| not_understood("command", error))?;
    if draft.command().may_be_forwarded_by(from) { Ok(draft) } else { Err(Status::permission_denied(NOT_FORWARDED)) }
}

/// The answer to one forwarded command.
fn answer(committed: Result<Committed, Status>) -> v1::Proposed {
    let proposed = committed.and_then(|Committed { outcome, index }| {
        Ok(v1::Proposed { outcome: encode(&outcome)?, index, ..v1::Proposed::default() })
    });
    proposed.unwrap_or_else(|status| v1::Proposed {
        code: status.code().into(),
        message: status.message().to_owned(),
        ..v1::Proposed::default()
    })
}

fn proven<T>(request: &Request<T>) -> Option<ProvenReplica> {
    request.extensions().get::<ProvenReplica>().copied()
}

fn reply<T: serde::Serialize>(answer: &T) -> Result<Response<v1::RaftReply>, Status> {
    Ok(Response::new(v1::RaftReply { payload: encode(answer)? }))
}

fn digest_at((index, digest): (u64, muster_lifecycle::table::Digest)) -> v1::DigestAt {
    v1::DigestAt { index, digest: Bytes::copy_from_slice(&digest.0.to_be_bytes()) }
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this replica's consensus stopped: {error}"))
}

/// Runs disk work off the async workers: a slow disk must not hold up heartbeats.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))?;
    done.map_err(storage)
}

fn storage(error: impl std::fmt::Display) -> Status {
    Status::data_loss(error.to_string())
}

/// A membership error on the wire, here and at the operators' door.
pub fn membership_status(error: &MembershipError) -> Status {
    match error {
        MembershipError::Request(request) => request_status(request.clone()),
        MembershipError::NotMember { .. } => Status::not_found(error.to_string()),
        MembershipError::AlreadyMember { .. } | MembershipError::AlreadyVoter { .. } => {
            Status::already_exists(error.to_string())
        }
        MembershipError::ByLeader { code, message } => Status::new(*code, message.clone()),
        MembershipError::Retired { .. }
        | MembershipError::NotAnnounced { .. }
        | MembershipError::WouldLoseQuorum { .. }
        | MembershipError::TooFarBehind { .. }
        | MembershipError::LastVoter { .. }
        | MembershipError::CannotLead { .. }
        | MembershipError::CannotWrite { .. }
        | MembershipError::NotMoved
        | MembershipError::Consensus(_) => Status::aborted(error.to_string()),
    }
}
