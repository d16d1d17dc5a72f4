//! TLS connections to a replica: TCP, then a handshake in which the server must prove its name, each with a time limit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::HostPort;

/// The limit for each of the two steps, the TCP connection and the TLS handshake.
const STEP_LIMIT: Duration = Duration::from_secs(5);

/// Connects to `address` with the certificate that `tls` holds. The server must be certified for `name`; `tune` sets
/// the options of the socket.
pub async fn dial(
    tls: Arc<ClientConfig>,
    name: &str,
    address: &HostPort,
    tune: impl FnOnce(&TcpStream) -> io::Result<()>,
) -> io::Result<TlsStream<TcpStream>> {
    let name =
        ServerName::try_from(name.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let connecting = TcpStream::connect((address.host().to_owned(), address.port()));
    let tcp = timeout(STEP_LIMIT, connecting).await.map_err(|_| late("connecting", address))??;
    tune(&tcp)?;
    let handshake = TlsConnector::from(tls).connect(name, tcp);
    timeout(STEP_LIMIT, handshake).await.map_err(|_| late("the TLS handshake", address))?
}

fn late(step: &str, address: &HostPort) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{step} to {address} took longer than {} s", STEP_LIMIT.as_secs()))
}
