//! TLS for every door and every outgoing connection: version 1.3, both sides with certificates, HTTP/2 inside.
//!
//! Sessions are never resumed: a resumed session would carry an old certificate past its expiry. The provider is named
//! in each configuration, so that no process-wide default can weaken it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use crate::config;
use crate::secret;

const ALPN: &[u8] = b"h2";
/// Our chains have one certificate; a folder of them is a mistake.
const CHAIN_LIMIT: usize = 8;

/// The names of a replica's TLS files, for those who write them and those who read them.
pub mod files {
    pub const PEER_CA: &str = "peer-ca.crt";
    pub const CLIENT_CA: &str = "client-ca.crt";
    pub const PEER_SERVER: (&str, &str) = ("peer-server.crt", "peer-server.key");
    pub const PEER_CLIENT: (&str, &str) = ("peer-client.crt", "peer-client.key");
    pub const SERVER: (&str, &str) = ("server.crt", "server.key");
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("{} does not hold PEM certificates: restore it, or issue a new one", path.display())]
    Certificates { path: PathBuf },
    #[error("{} does not hold a PEM private key: restore it, or issue a new pair", path.display())]
    Key { path: PathBuf },
    #[error("the certificate {} cannot be used with its key or its CA: were the files mixed up?", path.display())]
    Pair { path: PathBuf, source: rustls::Error },
    #[error("the CA {} cannot be used to verify certificates", path.display())]
    Authority { path: PathBuf, source: rustls::server::VerifierBuilderError },
}

/// Everything a replica needs to open its doors and to call its peers.
#[derive(Debug, Clone)]
pub struct ReplicaTls {
    /// For the peer door: callers need a certificate of the peer CA.
    pub peer_server: Arc<ServerConfig>,
    /// For the agent and client doors: callers need a certificate of the client CA.
    pub server: Arc<ServerConfig>,
    /// For calls to other replicas.
    pub peer_client: Arc<ClientConfig>,
}

impl ReplicaTls {
    /// Reads a replica's `tls/` folder.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let pair = |ca: &str, (certificate, key): (&str, &str)| {
            Credentials::load(&dir.join(ca), &dir.join(certificate), &dir.join(key))
        };
        Ok(Self {
            peer_server: pair(files::PEER_CA, files::PEER_SERVER)?.server()?,
            server: pair(files::CLIENT_CA, files::SERVER)?.server()?,
            peer_client: pair(files::PEER_CA, files::PEER_CLIENT)?.client()?,
        })
    }
}

/// The configuration with which operators and viewers call replicas.
pub fn operator(files: &config::ClientTls) -> Result<Arc<ClientConfig>, Error> {
    Credentials::load(&files.ca, &files.cert, &files.key)?.client()
}

/// A certificate with its key, and the CA that signs the other side's.
#[derive(Debug)]
pub struct Credentials {
    ca: PathBuf,
    certificate: PathBuf,
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let secret = secret::read_private(key)?;
        let key = PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|_| Error::Key { path: key.to_owned() })?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            roots.add(root).map_err(|_| Error::Certificates { path: ca.to_owned() })?;
        }
        let chain = certificates(certificate)?;
        Ok(Self { ca: ca.to_owned(), certificate: certificate.to_owned(), roots, chain, key })
    }

    /// A server that admits only clients with a certificate of the CA.
    pub fn server(self) -> Result<Arc<ServerConfig>, Error> {
        let ca = self.ca;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots), provider())
            .build()
            .map_err(|source| Error::Authority { path: ca, source })?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(self.chain, self.key))
            .map_err(|source| Error::Pair { path: self.certificate, source })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    /// A client that accepts only servers with a certificate of the CA, under the name it dialled.
    pub fn client(self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map(|builder| builder.with_root_certificates(self.roots))
            .and_then(|builder| builder.with_client_auth_cert(self.chain, self.key))
            .map_err(|source| Error::Pair { path: self.certificate, source })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = secret::read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).take(CHAIN_LIMIT).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| Error::Certificates { path: path.to_owned() })
}
