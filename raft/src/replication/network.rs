//! Network of the consensus library: carries raft's own messages over the peer service.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use muster_proto::v1;
use openraft::OptionalSend;
use openraft::error::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::{Code, Status};

use crate::replication::codec::{decode, encode};
use crate::replication::peers::{Lane, Peers};
use crate::storage::snapshot_store::SnapshotFile;
use crate::types::{Endpoint, LogId, TypeConfig, Vote};
use muster_lifecycle::replica::ReplicaId;

/// The longest that one chunk of a snapshot may take before the transfer counts as stuck.
const SNAPSHOT_CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a follower may take to store entries. Heartbeats have their own connection, so only the entries
/// wait for this. If entries are given up too early, replicas that are too busy already send, read and write them
/// again.
const ENTRIES_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a [`Link`] per target.
pub struct Network {
    peers: Arc<Peers>,
}

/// One replica's path to another.
pub struct Link {
    peers: Arc<Peers>,
    target: ReplicaId,
    endpoint: Endpoint,
    lane: Lane,
}

/// The header before the bytes of a snapshot.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
pub(crate) struct SnapshotAnnouncement {
    pub(crate) vote: Vote,
    pub(crate) last_log_id: Option<LogId>,
}

// === impl Network ===

impl Network {
    pub fn new(peers: Arc<Peers>) -> Self {
        Self { peers }
    }

    fn link(&self, target: ReplicaId, endpoint: &Endpoint, lane: Lane) -> Link {
        Link { peers: Arc::clone(&self.peers), target, endpoint: endpoint.clone(), lane }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: ReplicaId, node: &Endpoint) -> Link {
        self.link(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: ReplicaId, node: &Endpoint) -> Link {
        self.link(target, node, Lane::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: ReplicaId, node: &Endpoint) -> Link {
        self.link(target, node, Lane::Snapshot)
    }
}

// === impl Link ===

enum Verb {
    Append,
    Vote,
    PreVote,
    TransferLeader,
}

impl Link {
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        verb: Verb,
        request: &Q,
        ttl: Duration,
    ) -> Result<A, RPCError<TypeConfig>> {
        self.may_send(&verb).map_err(|why| rpc_error(Status::unavailable(why)))?;
        let payload = encode(request).map_err(rpc_error)?;
        let known = self.peers.memory.about(self.target);
        let message = v1::RaftMessage { greeting: Some(self.peers.greet(self.target)), payload };
        let mut client = self.peers.client(self.target, &self.endpoint, self.lane);
        let reply = async {
            match verb {
                Verb::Append => client.append(message).await,
                Verb::Vote => client.vote(message).await,
                Verb::PreVote => client.pre_vote(message).await,
                Verb::TransferLeader => client.transfer_leader(message).await,
            }
        };
        match tokio::time::timeout(ttl, reply).await {
            Ok(Ok(reply)) => {
                let reply = reply.into_inner();
                self.peers.hear_answer(self.target, known, &reply).await.map_err(rpc_error)?;
                // An answer to this replica counts only as long as it may ask.
                self.may_send(&verb).map_err(|why| rpc_error(Status::unavailable(why)))?;
                decode("raft reply", &reply.payload).map_err(rpc_error)
            }
            Ok(Err(status)) => Err(rpc_error(status)),
            Err(_) => Err(RPCError::Timeout(self.timeout(ttl))),
        }
    }

    /// Whether the standing of this replica allows the message.
    fn may_send(&self, verb: &Verb) -> Result<(), String> {
        match verb {
            Verb::TransferLeader => self.peers.standing.may_vote(),
            Verb::Append | Verb::Vote | Verb::PreVote => self.peers.standing.may_lead(),
        }
    }

    fn timeout(&self, timeout: Duration) -> Timeout<TypeConfig> {
        Timeout { action: RPCTypes::AppendEntries, id: self.peers.identity.id, target: self.target, timeout }
    }

    async fn send_snapshot(
        &self,
        header: SnapshotAnnouncement,
        file: SnapshotFile,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        self.may_send(&Verb::Append).map_err(|why| streaming_error(Status::unavailable(why)))?;
        let known = self.peers.memory.about(self.target);
        let first = v1::SnapshotChunk {
            greeting: Some(self.peers.greet(self.target)),
            header: encode(&header).map_err(streaming_error)?,
            data: Bytes::new(),
        };
        // A local read error ends the stream early; the receiver then finds the snapshot incomplete.
        let chunks = file.stream().scan((), |(), chunk| {
            let sent = match chunk {
                Ok(data) => Some(v1::SnapshotChunk { greeting: None, header: Bytes::new(), data }),
                Err(error) => {
                    tracing::error!(%error, "cannot read the snapshot being sent");
                    None
                }
            };
            std::future::ready(sent)
        });
        let stream = futures::stream::iter([first]).chain(chunks);
        let mut client = self.peers.client(self.target, &self.endpoint, Lane::Snapshot);
        let reply = client.install_snapshot(stream).await.map_err(streaming_error)?.into_inner();
        self.peers.hear_answer(self.target, known, &reply).await.map_err(streaming_error)?;
        decode("snapshot reply", &reply.payload).map_err(streaming_error)
    }
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let ttl = if rpc.entries.is_empty() { option.soft_ttl() } else { option.soft_ttl().max(ENTRIES_TIMEOUT) };
        self.call(Verb::Append, &rpc, ttl).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Verb::Vote, &rpc, option.soft_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Verb::PreVote, &rpc, option.soft_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let header = SnapshotAnnouncement { vote, last_log_id: snapshot.meta.last_log_id };
        let limit = option.soft_ttl().max(SNAPSHOT_CHUNK_TIMEOUT);
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = tokio::time::timeout(limit, self.send_snapshot(header, snapshot.snapshot)) => match sent {
                Ok(result) => result,
                Err(_) => Err(StreamingError::Timeout(self.timeout(limit))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Verb::TransferLeader, &req, option.soft_ttl()).await
    }
}

/// A target that refuses this replica, or cannot be reached, is left alone for a while; other errors are retried.
fn rpc_error(status: Status) -> RPCError<TypeConfig> {
    if needs_backoff(status.code()) {
        RPCError::Unreachable(Unreachable::from_string(describe(&status)))
    } else {
        RPCError::Network(NetworkError::from_string(describe(&status)))
    }
}

fn streaming_error(status: Status) -> StreamingError<TypeConfig> {
    if needs_backoff(status.code()) {
        StreamingError::Unreachable(Unreachable::from_string(describe(&status)))
    } else {
        StreamingError::Network(NetworkError::from_string(describe(&status)))
    }
}

fn needs_backoff(code: Code) -> bool {
    use Code::{PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable, Unknown};
    matches!(code, Unavailable | PermissionDenied | Unauthenticated | Unknown | ResourceExhausted)
}

fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
