//! A TLS connection to a replica: the server must be certified for the host that was dialled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use muster_pki::HostPort;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The limit for each of the two steps, the TCP connection and the TLS handshake.
const STEP_LIMIT: Duration = Duration::from_secs(5);

/// Connects to one of a replica's doors with the certificate that `tls` holds.
pub async fn connect(tls: Arc<ClientConfig>, address: &HostPort) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(address.host().to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let connecting = TcpStream::connect((address.host().to_owned(), address.port()));
    let tcp = timeout(STEP_LIMIT, connecting).await.map_err(|_| late("connecting", address))??;
    // Requests are small and leave at once.
    tcp.set_nodelay(true)?;
    let handshake = TlsConnector::from(tls).connect(name, tcp);
    timeout(STEP_LIMIT, handshake).await.map_err(|_| late("the TLS handshake", address))?
}

fn late(step: &str, address: &HostPort) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{step} to {address} took longer than {} s", STEP_LIMIT.as_secs()))
}
