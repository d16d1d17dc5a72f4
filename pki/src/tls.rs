//! TLS for every door and every outgoing connection: version 1.3, both sides with certificates, HTTP/2 inside.
//!
//! Sessions are never resumed: a resumed session would carry an old certificate past its expiry. The provider is named
//! in each configuration, so that no process-wide default can weaken it.

mod agents;

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

use crate::authority::{self, Authority};
use crate::client_config::ClientTls;
use crate::secret;

use self::agents::AgentVerifier;

const ALPN: &[u8] = b"h2";
/// Our chains have one certificate; a folder of them is a mistake.
const CHAIN_LIMIT: usize = 8;

/// The names of a replica's TLS files, for the code that writes them and the code that reads them.
pub mod files {
    pub const PEER_CA: &str = "peer-ca.crt";
    pub const CLIENT_CA: &str = "client-ca.crt";
    /// For signing the certificates of nodes.
    pub const CLIENT_CA_KEY: &str = "client-ca.key";
    pub const PEER_SERVER: (&str, &str) = ("peer-server.crt", "peer-server.key");
    pub const PEER_CLIENT: (&str, &str) = ("peer-client.crt", "peer-client.key");
    pub const SERVER: (&str, &str) = ("server.crt", "server.key");
    pub const CANARY: (&str, &str) = ("canary.crt", "canary.key");
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("{place} does not hold PEM certificates: restore it, or issue a new one")]
    Certificates { place: String },
    #[error("{place} does not hold a PEM private key: restore it, or issue a new pair")]
    Key { place: String },
    #[error("the certificate {place} cannot be used with its key or its CA: were the files mixed up?")]
    Pair { place: String, source: rustls::Error },
    #[error("the CA {place} cannot be used to verify certificates")]
    Authority { place: String, source: rustls::server::VerifierBuilderError },
    #[error("{place} cannot be used to sign for nodes: is it the key of the CA beside it?")]
    Signing { place: String, source: authority::Error },
}

/// Everything a replica needs to open its doors and to call its peers.
#[derive(Debug, Clone)]
pub struct ReplicaTls {
    /// For the peer door: callers need a certificate of the peer CA.
    pub peer_server: Arc<ServerConfig>,
    /// For the client and HTTP doors: callers need a certificate of the client CA.
    pub server: Arc<ServerConfig>,
    /// For the agent door: callers need a certificate of the client CA, except to ask for one or to renew an expired
    /// one.
    pub agent_server: Arc<ServerConfig>,
    /// For calls to other replicas.
    pub peer_client: Arc<ClientConfig>,
    /// For calls to the own agent door.
    pub canary: Arc<ClientConfig>,
    /// The client CA with its key, if this replica may sign for nodes.
    pub authority: Option<Arc<Authority>>,
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
            agent_server: pair(files::CLIENT_CA, files::SERVER)?.agent_server()?,
            peer_client: pair(files::PEER_CA, files::PEER_CLIENT)?.client()?,
            canary: pair(files::CLIENT_CA, files::CANARY)?.client()?,
            authority: authority(dir)?,
        })
    }
}

/// A replica that was not given the CA's key signs nothing; one that was must be able to use it. If the folder cannot
/// be searched, that is an error, not a missing key.
fn authority(dir: &Path) -> Result<Option<Arc<Authority>>, Error> {
    let (certificate, key) = (dir.join(files::CLIENT_CA), dir.join(files::CLIENT_CA_KEY));
    let unseen = |source| secret::Error::Io { action: "look for", path: key.clone(), source };
    if !key.try_exists().map_err(unseen)? {
        return Ok(None);
    }
    let (certificate, text) = (secret::read(&certificate)?, secret::read_private(&key)?);
    let authority = Authority::from_pem(&certificate, &text);
    let place = || key.display().to_string();
    authority.map(|authority| Some(Arc::new(authority))).map_err(|source| Error::Signing { place: place(), source })
}

/// The configuration with which operators and viewers call replicas.
pub fn operator(files: &ClientTls) -> Result<Arc<ClientConfig>, Error> {
    Credentials::load(&files.ca, &files.cert, &files.key)?.client()
}

/// The configuration with which an agent calls replicas, from PEM texts in memory.
pub fn agent(ca: &str, certificate: &str, key: &str) -> Result<Arc<ClientConfig>, Error> {
    let given = |what: &str, text| Pem { place: format!("the agent's {what}"), text };
    Credentials::parse(&given("CA", ca), &given("certificate", certificate), &given("key", key))?.client()
}

/// A certificate with its key, and the CA that signs the other side's.
#[derive(Debug)]
pub struct Credentials {
    /// The source of the CA and of the certificate, for messages.
    ca: String,
    certificate: String,
    roots: RootCertStore,
    authorities: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// PEM text, and its source.
struct Pem<'a> {
    place: String,
    text: &'a str,
}

impl Credentials {
    pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let texts = (secret::read_private(key)?, secret::read(ca)?, secret::read(certificate)?);
        Self::parse(&Pem::of(ca, &texts.1), &Pem::of(certificate, &texts.2), &Pem::of(key, &texts.0))
    }

    fn parse(ca: &Pem<'_>, certificate: &Pem<'_>, key: &Pem<'_>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        let authorities = ca.certificates()?;
        for root in &authorities {
            roots.add(root.clone()).map_err(|_| Error::Certificates { place: ca.place.clone() })?;
        }
        let (chain, key) = (certificate.certificates()?, key.private_key()?);
        Ok(Self { ca: ca.place.clone(), certificate: certificate.place.clone(), roots, authorities, chain, key })
    }

    /// A server that admits only clients with a certificate of the CA.
    pub fn server(self) -> Result<Arc<ServerConfig>, Error> {
        let verifier = self.verifier()?;
        self.serving(verifier)
    }

    /// A server that also admits callers without a certificate, or with an expired one; the door decides what they may
    /// do. It sends its CA, so that a new machine can check it against the fingerprint in its token.
    pub fn agent_server(mut self) -> Result<Arc<ServerConfig>, Error> {
        let verifier = Arc::new(AgentVerifier::new(self.verifier()?));
        self.chain.append(&mut self.authorities);
        self.serving(verifier)
    }

    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let roots = Arc::new(self.roots.clone());
        let built = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        built.map_err(|source| Error::Authority { place: self.ca.clone(), source })
    }

    fn serving(self, verifier: Arc<dyn ClientCertVerifier>) -> Result<Arc<ServerConfig>, Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(self.chain, self.key))
            .map_err(|source| Error::Pair { place: self.certificate, source })?;
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
            .map_err(|source| Error::Pair { place: self.certificate, source })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

// === impl Pem ===

impl<'a> Pem<'a> {
    fn of(path: &Path, text: &'a str) -> Self {
        Self { place: path.display().to_string(), text }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).take(CHAIN_LIMIT).collect();
        chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| Error::Certificates { place: self.place.clone() })
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(self.text.as_bytes()).map_err(|_| Error::Key { place: self.place.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_key_is_not_treated_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(authority(dir.path()).unwrap().is_none());
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = authority(&file).unwrap_err().to_string();
        assert!(error.starts_with("cannot look for ") && error.ends_with(files::CLIENT_CA_KEY), "{error}");
    }
}
