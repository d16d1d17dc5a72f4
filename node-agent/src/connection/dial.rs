//! Dialling: outgoing connections of agents with TCP, TLS and HTTP/2 to one endpoint. They use little memory, and
//! every wait is bounded.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use muster_proto::v1::agent_client::AgentClient;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Uri};

use super::endpoint::Endpoint;
use super::failure::{SessionFailure, quoted};
use super::tether::Tethered;

const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TCP_KEEPALIVE_PROBES: u32 = 3;
/// A replica that does not acknowledge bytes for so long is gone, whatever the kernel's own retries would say.
const UNACKNOWLEDGED_LIMIT_MS: u32 = 15_000;
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection to a replica that hangs is given up after so long, whatever the agent sent on it.
pub(crate) const HANG_NOTICED: Duration = PING_INTERVAL.saturating_add(PING_TIMEOUT);
/// Messages are small in both directions, and a simulated fleet has many connections.
const WINDOW: u32 = 64 << 10;
/// A connection has one call.
const CALLS_WAITING: usize = 1;
/// The largest message that the agents' door accepts.
pub(crate) const MESSAGE_MAX: usize = 256 << 10;

type Wire = TokioIo<Tethered<TlsStream<TcpStream>>>;

/// Like [`channel`], with a client for the streams of the agents' door.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    tls: &TlsConnector,
    limit: Duration,
) -> Result<(AgentClient<Channel>, DropGuard), SessionFailure> {
    let (channel, guard) = channel(endpoint, tls, limit).await?;
    let client =
        AgentClient::new(channel).max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX);
    Ok((client, guard))
}

/// Connects to one endpoint. The TCP connection and the TLS handshake may each take as long as `limit`. Dropping the
/// guard closes the connection at once.
pub(crate) async fn channel(
    endpoint: &Endpoint,
    tls: &TlsConnector,
    limit: Duration,
) -> Result<(Channel, DropGuard), SessionFailure> {
    let token = CancellationToken::new();
    let dialler = Dialler { endpoint: Arc::new(endpoint.clone()), tls: tls.clone(), limit, token: token.clone() };
    let guard = token.drop_guard();
    let transport = endpoint
        .channel
        .clone()
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .buffer_size(CALLS_WAITING);
    let unreachable =
        |error| SessionFailure::Unreachable { endpoint: endpoint.to_string(), reason: root_cause(&error) };
    let channel = transport.connect_with_connector(dialler).await.map_err(unreachable)?;
    Ok((channel, guard))
}

#[derive(Clone)]
struct Dialler {
    endpoint: Arc<Endpoint>,
    tls: TlsConnector,
    limit: Duration,
    token: CancellationToken,
}

// === impl Dialler ===

impl Dialler {
    async fn dial(self) -> io::Result<Wire> {
        let connecting = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port));
        let late = |what| io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {:?}", self.limit));
        let tcp = timeout(self.limit, connecting).await.map_err(|_| late("no TCP connection"))??;
        tune(&tcp)?;
        let handshake = self.tls.connect(self.endpoint.name.clone(), tcp);
        let tls = timeout(self.limit, handshake).await.map_err(|_| late("no TLS handshake"))??;
        Ok(TokioIo::new(Tethered::new(tls, self.token)))
    }
}

impl tower::Service<Uri> for Dialler {
    type Response = Wire;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

/// Makes beats leave at once, and the kernel notice a replica that vanished.
fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, TCP_KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, TCP_KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, TCP_KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(tcp, UNACKNOWLEDGED_LIMIT_MS)?;
    Ok(())
}

/// The innermost error: the outer ones only report that the transport failed.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    quoted(&cause.to_string())
}
