//! Channels to the other replicas: one per target, made lazily, kept until the address changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use muster_proto::v1;
use muster_proto::v1::peer_client::PeerClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint as ChannelEndpoint, Uri};
use tower::service_fn;

use crate::feed::Feed;
use crate::level_guard::{Build, LevelGuard};
use crate::membership::standing::{Exclusion, Standing};
use crate::replica::Replica;
use crate::replication::connector::Connector;
use crate::replication::greeting::{GreetingRefusal, PeerIdentity, ProvenReplica, check_levels, mark_of};
use crate::replication::peer_memory::{Acquaintance, PeerMemory, from_wire};
use crate::storage::peer_mark::PeerMark;
use crate::types::Endpoint;
use muster_lifecycle::replica::ReplicaId;

/// Largest message between replicas. A batch is bounded far below this.
pub const PEER_MESSAGE_MAX: usize = 8 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

pub struct Peers {
    pub identity: PeerIdentity,
    pub feed: Arc<Feed>,
    guard: Arc<LevelGuard>,
    pub memory: Arc<PeerMemory>,
    pub standing: Arc<Standing>,
    connector: Arc<dyn Connector>,
    /// Keyed by lane too: a snapshot must not stand in front of a heartbeat.
    channels: Mutex<BTreeMap<(ReplicaId, Lane), (String, Channel)>>,
}

/// Traffic that must not wait for other traffic gets a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Log,
    Heartbeat,
    Snapshot,
    Request,
    /// Digests of the agents that each replica hears: a late digest counts as none.
    Pulse,
}

// === impl Peers ===

impl Peers {
    pub fn new(
        identity: PeerIdentity,
        feed: Arc<Feed>,
        connector: Arc<dyn Connector>,
        memory: PeerMemory,
        standing: Standing,
        guard: Arc<LevelGuard>,
    ) -> Arc<Self> {
        let (memory, standing) = (Arc::new(memory), Arc::new(standing));
        Arc::new(Self { identity, feed, memory, standing, guard, connector, channels: Mutex::new(BTreeMap::new()) })
    }

    pub fn client(&self, target: ReplicaId, endpoint: &Endpoint, lane: Lane) -> PeerClient<Channel> {
        let channel = self.channel(target, endpoint, lane);
        PeerClient::new(channel).max_decoding_message_size(PEER_MESSAGE_MAX).max_encoding_message_size(PEER_MESSAGE_MAX)
    }

    /// The channel for other services that share the peers' door.
    pub fn channel(&self, target: ReplicaId, endpoint: &Endpoint, lane: Lane) -> Channel {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let known = channels.get(&(target, lane)).filter(|(address, _)| *address == endpoint.peer);
        match known {
            Some((_, channel)) => channel.clone(),
            None => {
                let channel = self.open(target, endpoint.peer.clone());
                channels.insert((target, lane), (endpoint.peer.clone(), channel.clone()));
                channel
            }
        }
    }

    pub fn greet(&self, target: ReplicaId) -> v1::Greeting {
        let Build { levels, .. } = self.guard.build();
        let current = self.feed.current();
        let in_force = current.state.level_in_force();
        v1::Greeting {
            level: in_force.level.0,
            raised_by: in_force.raised_by.to_string(),
            level_min: levels.min.0,
            level_max: levels.max.0,
            ..self.identity.greet(target, &self.feed, &self.memory)
        }
    }

    pub(crate) fn guard(&self) -> &LevelGuard {
        &self.guard
    }

    /// Takes note of what another replica knows. This one takes no part any more if that is more than it knows itself.
    pub(crate) fn learn(&self, heard: &[v1::Mark]) {
        let about_me = self.memory.passed_on(self.identity.id, heard);
        if let Some(dispute) = about_me.and_then(|about_me| self.memory.forgotten(&about_me)) {
            self.standing.exclude(Exclusion::WentBack { id: self.identity.id, dispute });
        }
    }

    /// Takes note of an answer to a message that was sent when `known` was known of its sender. Completes when a store
    /// that is new is remembered durably, so that the answer may count.
    pub(crate) async fn hear_answer(
        &self,
        from: ReplicaId,
        known: Option<PeerMark>,
        answer: &v1::RaftReply,
    ) -> Result<(), Status> {
        self.learn(&answer.heard);
        let told = answer.mark.as_ref().and_then(from_wire).map(|(_, told)| told);
        let told = told.ok_or_else(|| Status::data_loss("the answer carries no mark"))?;
        let heard = self.memory.answered(from, told, known);
        let acquaintance = heard.map_err(|dispute| GreetingRefusal::Forgot { id: from, dispute })?;
        self.keep(acquaintance).await
    }

    pub(crate) async fn keep(&self, acquaintance: Acquaintance) -> Result<(), Status> {
        match acquaintance {
            Acquaintance::Known => Ok(()),
            Acquaintance::New => self.memory.save().await.map_err(|error| Status::unavailable(error.to_string())),
        }
    }

    fn open(&self, target: ReplicaId, address: String) -> Channel {
        let connector = Arc::clone(&self.connector);
        let connect = service_fn(move |_: Uri| {
            let (connector, address) = (Arc::clone(&connector), address.clone());
            async move { connector.connect(target, &address).await.map(TokioIo::new) }
        });
        // The URI is a placeholder: the connector knows the address and checks the certificate.
        ChannelEndpoint::from_static("http://replica.muster")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .connect_with_connector_lazy(connect)
    }
}

// === impl Replica ===

impl Replica {
    pub(crate) fn endpoint_of(&self, id: ReplicaId) -> Option<Endpoint> {
        self.members().remove(&id).map(|member| member.endpoint)
    }

    pub(crate) fn request_client(&self, target: ReplicaId) -> Option<PeerClient<Channel>> {
        Some(self.peers.client(target, &self.endpoint_of(target)?, Lane::Request))
    }

    /// The channel and the greeting by which services beside raft reach a member. `None` if it is no member.
    pub fn peer_channel(&self, target: ReplicaId, lane: Lane) -> Option<(Channel, v1::Greeting)> {
        let endpoint = self.endpoint_of(target)?;
        Some((self.peers.channel(target, &endpoint, lane), self.peers.greet(target)))
    }

    /// The id of a caller at the peers' door, if it may speak to this replica.
    pub fn admit(
        &self,
        proven: Option<ProvenReplica>,
        greeting: Option<&v1::Greeting>,
    ) -> Result<ReplicaId, GreetingRefusal> {
        let from = self.peers.identity.check(proven, greeting, self.feed())?;
        let greeting = greeting.ok_or(GreetingRefusal::NoGreeting)?;
        check_levels(from, greeting, self.current().state.level_in_force(), self.peers.guard())?;
        self.peers.learn(&greeting.heard);
        Ok(from)
    }

    /// As [`Replica::admit`], for raft's own messages: the store of the caller must be the one it spoke with before. It
    /// is remembered durably before the message counts.
    pub(crate) async fn admit_raft(
        &self,
        proven: Option<ProvenReplica>,
        greeting: Option<&v1::Greeting>,
    ) -> Result<ReplicaId, Status> {
        let from = self.admit(proven, greeting)?;
        self.standing().may_vote().map_err(Status::unavailable)?;
        let told = greeting.and_then(mark_of).ok_or(GreetingRefusal::NoGreeting)?;
        let met = self.peers.memory.greeted(from, told);
        let acquaintance = met.map_err(|dispute| GreetingRefusal::Forgot { id: from, dispute })?;
        self.peers.keep(acquaintance).await?;
        Ok(from)
    }

    pub fn standing(&self) -> &Standing {
        &self.peers.standing
    }

    /// How far this replica's promises reach.
    pub fn mark(&self) -> PeerMark {
        self.peers.memory.own()
    }

    /// What this replica has written down about another one.
    pub fn saved_mark(&self, id: ReplicaId) -> Option<PeerMark> {
        self.peers.memory.saved(id)
    }

    /// The other replicas that went back in time, as far as this one knows.
    pub fn distrusted(&self) -> BTreeMap<ReplicaId, String> {
        self.peers.memory.distrusted()
    }
}
