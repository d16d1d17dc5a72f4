//! Endpoints of a client: the addresses and connections of the replicas, and which one answered last.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use muster_pki::{ClientConfig, HostPort, tls};
use muster_proto::v1::operator_client::OperatorClient;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::dial;
use crate::error::{self, Why};
use crate::retry::Operator;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A frozen replica is noticed by its missing answer to a ping, even if the watch on it is quiet.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// A list chunk holds many objects, a request one.
const MAX_ANSWER: usize = 16 << 20;
const MAX_REQUEST: usize = 2 << 20;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The client's configuration cannot be used.
#[derive(Debug, Error)]
pub enum SetupError {
    #[error("no endpoints in client.toml: add `endpoints = [\"HOST:PORT\"]` with the client address of a replica")]
    NoEndpoints,
    #[error("endpoint {address} is not a host that TLS can verify: use a DNS name or an IP address")]
    Host { address: String },
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

pub(crate) struct Endpoints {
    replicas: Vec<Replica>,
    last_good: AtomicUsize,
}

struct Replica {
    address: String,
    endpoint: Endpoint,
    dialler: Dialler,
    channel: Mutex<Option<Channel>>,
}

/// Opens TLS connections to one replica, under the name in its address.
#[derive(Clone)]
struct Dialler {
    address: HostPort,
    tls: Arc<rustls::ClientConfig>,
}

// === impl Endpoints ===

impl Endpoints {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, SetupError> {
        if config.endpoints.is_empty() {
            return Err(SetupError::NoEndpoints);
        }
        let tls = tls::operator(&config.tls)?;
        let replicas = config.endpoints.iter().map(|address| Replica::new(address, &tls));
        Ok(Self { replicas: replicas.collect::<Result<_, _>>()?, last_good: AtomicUsize::new(0) })
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.replicas.iter().map(|replica| replica.address.as_str())
    }

    pub(crate) fn address(&self, index: usize) -> &str {
        self.replicas.get(index).map_or("", |replica| replica.address.as_str())
    }

    pub(crate) fn index_of(&self, address: &str) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.address == address)
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    /// Every index once, beginning with the one that answered last.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.last_good.load(Ordering::Relaxed), self.replicas.len());
        (0..count).map(move |step| (first + step) % count)
    }

    pub(crate) fn remember(&self, index: usize) {
        self.last_good.store(index, Ordering::Relaxed);
    }

    /// The next attempt on this replica makes a new connection.
    pub(crate) fn forget(&self, index: usize) {
        if let Some(replica) = self.replicas.get(index) {
            replica.set_channel(None);
        }
    }

    pub(crate) async fn operator(&self, index: usize, patience: Duration) -> Result<Operator, Why> {
        let Some(replica) = self.replicas.get(index) else { return Err(Why::NotTried) };
        let channel = replica.channel(patience.min(CONNECT_TIMEOUT)).await?;
        Ok(OperatorClient::new(channel).max_decoding_message_size(MAX_ANSWER).max_encoding_message_size(MAX_REQUEST))
    }
}

// === impl Replica ===

impl Replica {
    fn new(address: &HostPort, tls: &Arc<rustls::ClientConfig>) -> Result<Self, SetupError> {
        let unusable = || SetupError::Host { address: address.to_string() };
        ServerName::try_from(address.host()).map_err(|_| unusable())?;
        let endpoint = Endpoint::from_shared(format!("https://{address}"))
            .map_err(|_| unusable())?
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let dialler = Dialler { address: address.clone(), tls: tls.clone() };
        Ok(Self { address: address.to_string(), endpoint, dialler, channel: Mutex::new(None) })
    }

    /// The open connection, or a new one.
    async fn channel(&self, patience: Duration) -> Result<Channel, Why> {
        let open = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(channel) = open {
            return Ok(channel);
        }
        let connecting = self.endpoint.connect_with_connector(self.dialler.clone());
        match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(channel)) => {
                self.set_channel(Some(channel.clone()));
                Ok(channel)
            }
            Ok(Err(failed)) => Err(match error::distrust(&failed) {
                Some(reason) => Why::Distrusted(reason),
                None if error::is_refusal(&failed) => Why::Refused,
                None => Why::NoConnection(error::root_cause(&failed)),
            }),
            Err(_) => Err(Why::ConnectTimeout(patience)),
        }
    }

    fn set_channel(&self, channel: Option<Channel>) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
    }
}

// === impl Dialler ===

impl Dialler {
    async fn dial(self) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        Ok(TokioIo::new(dial::connect(self.tls, &self.address).await?))
    }
}

impl tower::Service<Uri> for Dialler {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.dial().await })
    }
}
