//! Kubeconfig with credentials issued elsewhere: server, CA, certificate and key of its current context.
//!
//! Certificates and keys are embedded (`...-data`, base64) or files relative to the kubeconfig. A key that other users
//! of this machine can read is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::settings::read_bounded;
use crate::connection::Endpoint;
use crate::credentials::{CredentialsError, NodeCredentials, PemTexts};

const OTHERS: u32 = 0o077;

#[derive(Debug)]
pub struct Kubeconfig {
    /// Endpoint of the replica's agents' door, as HOST:PORT.
    pub server: Option<String>,
    pub credentials: NodeCredentials,
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
        let certificate = pem(near, "client-certificate", &user.client_certificate, &user.client_certificate_data)?;
        let key = pem(near, "client-key", &user.client_key, &user.client_key_data)?;
        let server = cluster.server.as_deref().map(endpoint).transpose()?;
        let credentials = NodeCredentials::new(&PemTexts { ca, certificate, key }, None).map_err(unusable)?;
        Ok(Self { server, credentials })
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

/// `https://HOST:PORT`, as in kubeconfigs.
fn endpoint(server: &str) -> Result<String, String> {
    let wrong = || format!("has the server {server:?}: write https://HOST:PORT");
    let endpoint = server.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/').to_owned();
    Endpoint::list(std::slice::from_ref(&endpoint)).map_err(|_| wrong())?;
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

/// The error in terms of a kubeconfig: advice about state directories does not apply.
fn unusable(error: CredentialsError) -> String {
    match &error {
        CredentialsError::Certificates(what) => format!("has no certificates in {what}"),
        CredentialsError::OtherKey => "has no client-key that belongs to its client-certificate".to_owned(),
        CredentialsError::Store(_)
        | CredentialsError::Name(_)
        | CredentialsError::OtherNode { .. }
        | CredentialsError::Tls(_) => format!("cannot be used: {error}"),
    }
}

pub(super) fn require_secret(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| format!("the secret in {shown} cannot be read: {error}"))?;
    match metadata.permissions().mode() & OTHERS {
        0 => Ok(()),
        mode => {
            Err(format!("the secret in {shown} is open to others (mode {mode:03o} too much): run `chmod 600 {shown}`"))
        }
    }
}
