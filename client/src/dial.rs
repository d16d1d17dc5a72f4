//! A TLS connection to a replica: the server must be certified for the host that was dialled.

use std::io;
use std::sync::Arc;

use muster_pki::{HostPort, dial};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Connects to one of a replica's doors with the certificate that `tls` holds.
pub async fn connect(tls: Arc<ClientConfig>, address: &HostPort) -> io::Result<TlsStream<TcpStream>> {
    // Requests are small and leave at once.
    dial(tls, address.host(), address, |tcp| tcp.set_nodelay(true)).await
}
