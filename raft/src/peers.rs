//! Channels to the other replicas: one per target, made lazily, kept until the address changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use muster_proto::v1;
use muster_proto::v1::peer_client::PeerClient;
use tonic::transport::{Channel, Endpoint as ChannelEndpoint, Uri};
use tower::service_fn;

use crate::connector::Connector;
use crate::feed::Feed;
use crate::greeting::Introduction;
use crate::types::{Endpoint, ReplicaId};

/// Largest message between replicas. A batch is bounded far below this.
pub const PEER_MESSAGE_MAX: usize = 8 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

pub struct Peers {
    pub introduction: Introduction,
    pub feed: Arc<Feed>,
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
}

// === impl Peers ===

impl Peers {
    pub fn new(introduction: Introduction, feed: Arc<Feed>, connector: Arc<dyn Connector>) -> Arc<Self> {
        Arc::new(Self { introduction, feed, connector, channels: Mutex::new(BTreeMap::new()) })
    }

    pub fn client(&self, target: ReplicaId, endpoint: &Endpoint, lane: Lane) -> PeerClient<Channel> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let known = channels.get(&(target, lane)).filter(|(address, _)| *address == endpoint.peer);
        let channel = match known {
            Some((_, channel)) => channel.clone(),
            None => {
                let channel = self.open(target, endpoint.peer.clone());
                channels.insert((target, lane), (endpoint.peer.clone(), channel.clone()));
                channel
            }
        };
        PeerClient::new(channel).max_decoding_message_size(PEER_MESSAGE_MAX).max_encoding_message_size(PEER_MESSAGE_MAX)
    }

    pub fn greet(&self, target: ReplicaId) -> v1::Greeting {
        self.introduction.greet(target, &self.feed)
    }

    fn open(&self, target: ReplicaId, address: String) -> Channel {
        let connector = Arc::clone(&self.connector);
        let connect = service_fn(move |_: Uri| {
            let (connector, address) = (Arc::clone(&connector), address.clone());
            async move { connector.connect(target, &address).await.map(TokioIo::new) }
        });
        // The URI names nothing: the connector knows the address and checks the certificate.
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
