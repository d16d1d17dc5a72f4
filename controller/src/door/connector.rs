//! Connections to peers: the name that the server must prove, and the options of both sides' sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::connector::{Connector, Io};
use rustix::net::sockopt;
use rustls::ClientConfig;
use tokio::net::TcpStream;

use muster_pki::{FleetId, HostPort, dial};

use crate::door::certificate_clock::CertificateClock;

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
        let (tls, name, address) = (Arc::clone(&self.tls), self.fleet.replica_name(target), address.to_owned());
        async move {
            let address: HostPort =
                address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream: Box<dyn Io> = Box::new(dial(tls, &name, &address, tune).await?);
            Ok(stream)
        }
        .boxed()
    }
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
