//! Outgoing connections: TCP with a short time limit, then TLS to a server that must prove its name.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::connector::{Connector, Io};
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;

use muster_pki::{FleetId, HostPort};

use crate::door::certificate_clock::CertificateClock;

/// The limit for each of the two steps, the TCP connection and the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Data that stays unacknowledged this long means that the other machine is gone. The kernel's own retries take longer.
const UNACKNOWLEDGED_LIMIT_MS: u32 = 30_000;

/// Connects to peers: the server must prove to be that replica of that fleet, wherever the address leads.
#[derive(Debug, Clone)]
pub struct TlsConnector {
    tls: Arc<ClientConfig>,
    fleet: FleetId,
}

impl TlsConnector {
    pub fn new(tls: Arc<ClientConfig>, fleet: FleetId) -> Self {
        Self { tls, fleet }
    }

    /// Judges the certificates of servers by this clock.
    #[must_use]
    pub fn timed_by(mut self, clock: &CertificateClock) -> Self {
        Arc::make_mut(&mut self.tls).time_provider = Arc::new(clock.clone());
        self
    }
}

impl Connector for TlsConnector {
    fn connect(&self, target: ReplicaId, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (tls, name, address) = (Arc::clone(&self.tls), self.fleet.replica_name(target.0), address.to_owned());
        async move {
            let address = parse(&address)?;
            dial(tls, &name, &address).await
        }
        .boxed()
    }
}

async fn dial(tls: Arc<ClientConfig>, name: &str, address: &HostPort) -> io::Result<Box<dyn Io>> {
    let name = ServerName::try_from(name.to_owned()).map_err(invalid)?;
    let connecting = TcpStream::connect((address.host().to_owned(), address.port()));
    let tcp = timeout(PATIENCE, connecting).await.map_err(|_| late("connecting", address))??;
    tune(&tcp)?;
    let handshake = tokio_rustls::TlsConnector::from(tls).connect(name, tcp);
    let stream = timeout(PATIENCE, handshake).await.map_err(|_| late("the TLS handshake", address))??;
    Ok(Box::new(stream))
}

/// Sends small messages at once, and notices a peer that vanished silently. Used for both directions.
pub(crate) fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(tcp, UNACKNOWLEDGED_LIMIT_MS)?;
    Ok(())
}

fn parse(address: &str) -> io::Result<HostPort> {
    address.parse().map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn late(step: &str, address: &HostPort) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{step} to {address} took longer than {} s", PATIENCE.as_secs()))
}
