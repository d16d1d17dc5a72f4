//! Outgoing connections of agents: TCP, TLS and HTTP/2 to one door, with little memory and no endless waiting.

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

use crate::door::Door;
use crate::failure::{Failure, quoted};
use crate::tether::Tethered;

const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TCP_KEEPALIVE_PROBES: u32 = 3;
/// Beats unacknowledged for so long mean that the replica is gone, whatever the kernel's retries would say.
const UNACKNOWLEDGED_LIMIT_MS: u32 = 15_000;
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// After so long without a word the connection to a replica that hangs is given up, whatever the agent said on it.
pub(crate) const HANG_NOTICED: Duration = PING_INTERVAL.saturating_add(PING_PATIENCE);
/// Little is said in either direction, and a simulated fleet has many connections.
const WINDOW: u32 = 64 << 10;
/// One call is made on a connection.
const CALLS_WAITING: usize = 1;
/// What the agents' door takes.
pub(crate) const MESSAGE_MAX: usize = 256 << 10;

type Wire = TokioIo<Tethered<TlsStream<TcpStream>>>;

/// As [`channel`], for the streams of the agents' door.
pub(crate) async fn connect(
    door: &Door,
    tls: &TlsConnector,
    patience: Duration,
) -> Result<(AgentClient<Channel>, DropGuard), Failure> {
    let (channel, guard) = channel(door, tls, patience).await?;
    let client =
        AgentClient::new(channel).max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX);
    Ok((client, guard))
}

/// Connects to one door, with `patience` for each of the two steps, the TCP connection and the TLS handshake. Dropping
/// the guard closes the connection at once.
pub(crate) async fn channel(
    door: &Door,
    tls: &TlsConnector,
    patience: Duration,
) -> Result<(Channel, DropGuard), Failure> {
    let token = CancellationToken::new();
    let dialler = Dialler { door: Arc::new(door.clone()), tls: tls.clone(), patience, token: token.clone() };
    let guard = token.drop_guard();
    let endpoint = door
        .endpoint
        .clone()
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_PATIENCE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .buffer_size(CALLS_WAITING);
    let unreachable = |error| Failure::Unreachable { door: door.to_string(), reason: root_cause(&error) };
    let channel = endpoint.connect_with_connector(dialler).await.map_err(unreachable)?;
    Ok((channel, guard))
}

#[derive(Clone)]
struct Dialler {
    door: Arc<Door>,
    tls: TlsConnector,
    patience: Duration,
    token: CancellationToken,
}

// === impl Dialler ===

impl Dialler {
    async fn dial(self) -> io::Result<Wire> {
        let connecting = TcpStream::connect((self.door.host.as_str(), self.door.port));
        let late = |what| io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {:?}", self.patience));
        let tcp = timeout(self.patience, connecting).await.map_err(|_| late("no TCP connection"))??;
        tune(&tcp)?;
        let handshake = self.tls.connect(self.door.name.clone(), tcp);
        let tls = timeout(self.patience, handshake).await.map_err(|_| late("no TLS handshake"))??;
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

/// Beats leave at once, and a replica that vanished without a word is noticed.
fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, TCP_KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, TCP_KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, TCP_KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(tcp, UNACKNOWLEDGED_LIMIT_MS)?;
    Ok(())
}

/// The innermost error: the outer ones only say that the transport failed.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    quoted(&cause.to_string())
}
