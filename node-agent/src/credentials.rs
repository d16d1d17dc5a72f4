//! Credentials of a node: a key, a certificate, and the CA that signs both sides' certificates.
//!
//! ```text
//!   STATE-DIR/node.pem       key and certificate, 0600, replaced in one step, so that they always belong together
//!   STATE-DIR/ca.crt         the CA of the replicas
//!   STATE-DIR/joining.key    the key of a join that has not been answered, 0600
//! ```
//! The key is made here and never leaves the machine. Connections take the newest certificate when they open. Open
//! connections keep theirs, and their owners are told of each renewal.

mod store;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_proto::certified_name::{CertifiedName, CertifiedNameError};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

pub(crate) use self::store::new_key;
pub use self::store::{CredentialStore, CredentialStoreError};

const ALPN: &[u8] = b"h2";
/// Our chains are short; a longer file is a mistake.
const CHAIN_MAX: usize = 8;

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateValidity {
    pub from: SystemTime,
    pub until: SystemTime,
}

/// Credentials of one node. Clones share them: a renewal renews all.
#[derive(Clone)]
pub struct NodeCredentials(Arc<Inner>);

struct Inner {
    node: String,
    ca: String,
    store: Option<CredentialStore>,
    tls: Arc<ClientConfig>,
    shown: Arc<ShownCertificate>,
    renewals: watch::Sender<u64>,
    doubted: Notify,
}

/// The certificate that is shown to replicas.
#[derive(Debug)]
struct ShownCertificate(RwLock<HeldCertificate>);

#[derive(Debug, Clone)]
struct HeldCertificate {
    key: Arc<CertifiedKey>,
    validity: CertificateValidity,
}

/// Three PEM texts as they are stored.
#[derive(Clone)]
pub struct PemTexts {
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error(transparent)]
    Store(#[from] CredentialStoreError),
    #[error(
        "{0} does not hold PEM certificates: restore it, or remove node.pem from the state directory and join again"
    )]
    Certificates(&'static str),
    #[error(
        "the key does not belong to the certificate: remove node.pem from the state directory and join again with a new token"
    )]
    OtherKey,
    #[error(transparent)]
    Name(#[from] CertifiedNameError),
    #[error(
        "the certificate belongs to node {theirs:?}, but this machine is to be node {ours:?}: correct the name, or remove \
         node.pem from the state directory and join again with a new token"
    )]
    OtherNode { ours: String, theirs: String },
    #[error("the CA or the certificate cannot be used for TLS")]
    Tls(#[from] rustls::Error),
}

// === impl NodeCredentials ===

impl NodeCredentials {
    /// The credentials of a state directory that has joined before.
    pub fn load(store: &CredentialStore) -> Result<Self, CredentialsError> {
        Self::new(&store.load()?, Some(store.clone()))
    }

    /// Credentials from files that are managed elsewhere, as `muster init issue-agent` writes them. They are not
    /// renewed.
    pub fn read(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, CredentialsError> {
        let texts =
            PemTexts { ca: store::read(ca)?, certificate: store::read(certificate)?, key: store::read_private(key)? };
        Self::new(&texts, None)
    }

    pub(crate) fn new(texts: &PemTexts, store: Option<CredentialStore>) -> Result<Self, CredentialsError> {
        let (node, held) = hold(texts)?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&texts.ca).ok_or(CredentialsError::Certificates("the CA file"))? {
            roots.add(root)?;
        }
        let shown = Arc::new(ShownCertificate(RwLock::new(held)));
        let mut tls = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::clone(&shown) as _);
        tls.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would carry an old certificate past its end.
        tls.resumption = Resumption::disabled();
        let (ca, tls) = (texts.ca.clone(), Arc::new(tls));
        let (renewals, doubted) = (watch::Sender::default(), Notify::new());
        Ok(Self(Arc::new(Inner { node, ca, store, tls, shown, renewals, doubted })))
    }

    /// Always the same configuration: each handshake takes the certificate of that moment.
    pub fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.tls)
    }

    pub fn node(&self) -> &str {
        &self.0.node
    }

    pub fn require_node(&self, ours: &str) -> Result<(), CredentialsError> {
        match self.node() == ours {
            true => Ok(()),
            false => Err(CredentialsError::OtherNode { ours: ours.to_owned(), theirs: self.node().to_owned() }),
        }
    }

    pub fn validity(&self) -> CertificateValidity {
        self.0.shown.held().validity
    }

    pub fn expires(&self) -> SystemTime {
        self.validity().until
    }

    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires() <= now
    }

    /// Whether the agent renews these.
    pub fn is_renewable(&self) -> bool {
        self.0.store.is_some()
    }

    /// Takes a new certificate into use once it is on disk. The CA stays the one that this machine trusts.
    pub(crate) fn renew(&self, certificate: String, key: String) -> Result<(), CredentialsError> {
        let texts = PemTexts { ca: self.0.ca.clone(), certificate, key };
        let (node, held) = hold(&texts)?;
        if node != self.0.node {
            return Err(CredentialsError::OtherNode { ours: self.0.node.clone(), theirs: node });
        }
        if let Some(store) = &self.0.store {
            store.save(&texts)?;
        }
        *self.0.shown.0.write().unwrap_or_else(PoisonError::into_inner) = held;
        self.0.renewals.send_modify(|renewals| *renewals += 1);
        Ok(())
    }

    /// The number of renewals.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.0.renewals.subscribe()
    }

    /// A replica says that the certificate has expired, whatever this machine's clock says.
    pub fn doubt(&self) {
        self.0.doubted.notify_one();
    }

    /// Completes once for all doubts since the last time.
    pub(crate) async fn doubted(&self) {
        self.0.doubted.notified().await;
    }
}

impl fmt::Debug for NodeCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCredentials").field("node", &self.0.node).field("validity", &self.validity()).finish()
    }
}

impl fmt::Debug for PemTexts {
    /// Leaves the key out: it must not reach a log through a derived `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemTexts").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

// === impl ShownCertificate ===

impl ShownCertificate {
    fn held(&self) -> HeldCertificate {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesClientCert for ShownCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let key = self.held().key;
        key.key.choose_scheme(schemes).is_some().then_some(key)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The node of the certificate and what to show, if key and certificate belong together.
fn hold(texts: &PemTexts) -> Result<(String, HeldCertificate), CredentialsError> {
    const WHAT: &str = "the certificate file";
    let chain = certificates(&texts.certificate).ok_or(CredentialsError::Certificates(WHAT))?;
    let leaf = chain.first().ok_or(CredentialsError::Certificates(WHAT))?;
    let (name, validity) = read_certificate(leaf).ok_or(CredentialsError::Certificates(WHAT))?;
    let node = name.node()?;
    let key = PrivateKeyDer::from_pem_slice(texts.key.as_bytes()).map_err(|_| CredentialsError::OtherKey)?;
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|_| CredentialsError::OtherKey)?;
    Ok((node, HeldCertificate { key: Arc::new(key), validity }))
}

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).take(CHAIN_MAX).collect();
    chain.ok().filter(|chain| !chain.is_empty())
}

fn read_certificate(der: &CertificateDer<'_>) -> Option<(CertifiedName, CertificateValidity)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let common_name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let names = certificate.subject_alternative_name().ok()?.map(|names| names.value.general_names.as_slice());
    let moment = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let validity = certificate.validity();
    Some((
        CertifiedName::read(common_name, names.unwrap_or_default()),
        CertificateValidity {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
        },
    ))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The files of a machine that has joined.
pub fn files(dir: &Path) -> [PathBuf; 2] {
    [dir.join(store::NODE), dir.join(store::CA)]
}

#[cfg(test)]
mod tests;
