//! The settings of an operators' client: `client.toml`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::settings::{self, Error};
use crate::{FleetId, HostPort, secret};

const ENDPOINTS_LIMIT: usize = 64;

/// An operator's or viewer's settings: `client.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    pub fleet: FleetId,
    /// The client doors of the replicas, in the order in which they are tried.
    pub endpoints: Vec<HostPort>,
    pub tls: ClientTls,
}

/// Paths; in the file they are relative to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Reads a `client.toml` and makes sure that only the owner can read the key it names.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let mut config: Self = settings::parse(path, &secret::read(path)?)?;
        if !(1..=ENDPOINTS_LIMIT).contains(&config.endpoints.len()) {
            let reason = format!("give 1 to {ENDPOINTS_LIMIT} addresses");
            return Err(Error::InvalidIn { path: path.to_owned(), key: "endpoints", reason });
        }
        let base = path.parent().unwrap_or(Path::new(""));
        for file in [&mut config.tls.ca, &mut config.tls.cert, &mut config.tls.key] {
            *file = base.join(&*file);
        }
        secret::read_private(&config.tls.key)?;
        Ok(config)
    }
}
