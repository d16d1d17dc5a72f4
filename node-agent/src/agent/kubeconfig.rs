//! Credentials that somebody else made: the part of a kubeconfig that says where to go, whom to trust and who one is.
//!
//! Certificates and keys are embedded (`...-data`, base64) or named as files, relative to the kubeconfig. A key that others
//! on this machine can read is no secret, and is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use super::settings::read_bounded;
use crate::door::Door;

const OTHERS: u32 = 0o077;

#[derive(Debug)]
pub struct Kubeconfig {
    /// The replica's agents' address, as HOST:PORT.
    pub server: Option<String>,
    pub tls: Arc<ClientConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: String,
    contexts: Vec<Named<Context>>,
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
}

/// Each list names its element differently.
#[derive(Debug, Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
}

// === impl Kubeconfig ===

impl Kubeconfig {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = read_bounded(path)?;
        let file: File = serde_saphyr::from_str(&text).map_err(|error| format!("is no kubeconfig: {error}"))?;
        let (cluster, user) = file.current()?;
        let near = path.parent().unwrap_or(Path::new("."));
        if user.client_key_data.is_some() {
            require_secret(path)?;
        }
        if let Some(key) = &user.client_key {
            require_secret(&near.join(key))?;
        }
        let ca =
            pem(near, "certificate-authority", &cluster.certificate_authority, &cluster.certificate_authority_data)?;
        let chain = pem(near, "client-certificate", &user.client_certificate, &user.client_certificate_data)?;
        let key = pem(near, "client-key", &user.client_key, &user.client_key_data)?;
        let server = cluster.server.as_deref().map(endpoint).transpose()?;
        Ok(Self { server, tls: client(&ca, &chain, &key)? })
    }
}

// === impl File ===

impl File {
    fn current(&self) -> Result<(&Cluster, &User), String> {
        let context = named(&self.contexts, &self.current_context, "context")?;
        let cluster = named(&self.clusters, &context.cluster, "cluster")?;
        Ok((cluster, named(&self.users, &context.user, "user")?))
    }
}

fn named<'a, T>(list: &'a [Named<T>], name: &str, what: &str) -> Result<&'a T, String> {
    let found = list.iter().find(|element| element.name == name);
    found.map(|element| &element.value).ok_or_else(|| format!("has no {what} {name:?}, which it refers to"))
}

/// `https://HOST:PORT`, as kubeconfigs have it.
fn endpoint(server: &str) -> Result<String, String> {
    let wrong = || format!("has the server {server:?}: write https://HOST:PORT");
    let endpoint = server.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/').to_owned();
    Door::list(std::slice::from_ref(&endpoint)).map_err(|_| wrong())?;
    Ok(endpoint)
}

fn pem(near: &Path, what: &str, file: &Option<PathBuf>, data: &Option<String>) -> Result<String, String> {
    match (data, file) {
        (Some(data), _) => {
            let bytes = STANDARD
                .decode(data.trim())
                .map_err(|error| format!("has a {what}-data that is no base64: {error}"))?;
            String::from_utf8(bytes).map_err(|_| format!("has a {what}-data that is no PEM"))
        }
        (None, Some(file)) => {
            let path = near.join(file);
            read_bounded(&path).map_err(|error| format!("refers to {}: {error}", path.display()))
        }
        (None, None) => Err(format!("has neither {what} nor {what}-data")),
    }
}

pub(super) fn require_secret(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| format!("the key in {shown} cannot be read: {error}"))?;
    match metadata.permissions().mode() & OTHERS {
        0 => Ok(()),
        mode => {
            Err(format!("the key in {shown} is open to others (mode {mode:03o} too much): run `chmod 600 {shown}`"))
        }
    }
}

fn client(ca: &str, chain: &str, key: &str) -> Result<Arc<ClientConfig>, String> {
    let certificates = |text: &str, what: &str| {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        read.ok().filter(|read| !read.is_empty()).ok_or_else(|| format!("has no certificate in its {what}"))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca, "certificate-authority")? {
        roots.add(authority).map_err(|error| format!("has a certificate-authority that cannot be used: {error}"))?;
    }
    let chain = certificates(chain, "client-certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "has no key in its client-key".to_owned())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |error: rustls::Error| format!("has a client certificate that cannot be used: {error}");
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
