//! Settings of a replica, from a TOML file, flags, or both.
//!
//! File and flags are two [`Layer`]s of the same shape; merging gives the flags precedence and turns the result into a
//! [`ServerConfig`] that needs no further checks. Values are parsed while the file is read, so that a mistake is
//! reported with file, line and key.

mod addressing;
mod enrolment;
mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{FleetId, FleetMember, HostPort, http_beside, secret, settings, unique_members};
use serde::{Deserialize, Serialize};

pub use self::addressing::{ALLOCATE_NODE_CIDRS, AddressLayer};
pub use self::enrolment::{Enrolment, EnrolmentLayer};
pub use self::policy::PolicyLayer;
use crate::observe::logging::LogFormat;

/// One source of settings, all optional. Flags and files have the same shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ReplicaId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
    pub listen: ListenLayer,
    #[serde(skip_serializing_if = "AdvertiseLayer::is_empty")]
    pub advertise: AdvertiseLayer,
    #[serde(skip_serializing_if = "PolicyLayer::is_empty")]
    pub policy: PolicyLayer,
    #[serde(skip_serializing_if = "AddressLayer::is_empty")]
    pub addressing: AddressLayer,
    #[serde(skip_serializing_if = "EnrolmentLayer::is_empty")]
    pub enrolment: EnrolmentLayer,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub initial_members: Vec<FleetMember>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenLayer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvertiseLayer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<HostPort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<HostPort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<HostPort>,
}

/// The listening addresses of a replica's doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    pub peer: SocketAddr,
    pub agent: SocketAddr,
    pub client: SocketAddr,
    pub http: SocketAddr,
}

/// One value per door whose address the members share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doors<T> {
    pub peer: T,
    pub agent: T,
    pub client: T,
}

/// A replica's settings, complete and consistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    pub id: ReplicaId,
    pub fleet: FleetId,
    pub data_dir: PathBuf,
    pub tls_dir: PathBuf,
    pub listen: Listen,
    pub advertise: Doors<HostPort>,
    /// The initial voters; empty for a replica that joins a running fleet.
    pub initial_members: Vec<FleetMember>,
    pub join: bool,
    pub log_format: LogFormat,
    /// The policy that a cluster gets if it has none yet.
    pub policy: Policy,
    /// The settings of the policy that an operator wrote down. They are compared with a policy that exists already.
    pub explicit_policy: BTreeMap<String, String>,
    /// The ranges of node CIDRs that a cluster gets if it has none yet.
    pub addressing: Option<Addressing>,
    /// The lifetime of the certificates that this replica signs for nodes.
    pub enrolment: Enrolment,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error("`{key}` is not set: set it in the configuration file or with {flag}")]
    Missing { key: &'static str, flag: &'static str },
    #[error("`policy.{}` (--{}): {}", .0.field, .0.field, .0.rule)]
    Policy(Invalid),
    #[error("`addressing.{}` (--{}): {}", .0.field, .0.field, .0.rule)]
    Addressing(Invalid),
}

// === impl Layer ===

impl Layer {
    /// Reads a file; relative folders in it are relative to the file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let mut layer: Self = settings::parse(path, &secret::read(path).map_err(settings::Error::File)?)?;
        let base = path.parent().unwrap_or(Path::new(""));
        for dir in [&mut layer.data_dir, &mut layer.tls_dir].into_iter().flatten() {
            *dir = base.join(&*dir);
        }
        Ok(layer)
    }

    /// This layer; `below` supplies every setting that this layer does not name.
    fn over(self, below: Self) -> Self {
        let initial_members =
            if self.initial_members.is_empty() { below.initial_members } else { self.initial_members };
        Self {
            id: self.id.or(below.id),
            fleet: self.fleet.or(below.fleet),
            data_dir: self.data_dir.or(below.data_dir),
            tls_dir: self.tls_dir.or(below.tls_dir),
            join: self.join.or(below.join),
            log_format: self.log_format.or(below.log_format),
            listen: self.listen.over(below.listen),
            advertise: self.advertise.over(below.advertise),
            policy: self.policy.over(below.policy),
            addressing: self.addressing.over(below.addressing),
            enrolment: self.enrolment.over(below.enrolment),
            initial_members,
        }
    }
}

impl ListenLayer {
    fn over(self, below: Self) -> Self {
        Self {
            peer: self.peer.or(below.peer),
            agent: self.agent.or(below.agent),
            client: self.client.or(below.client),
            http: self.http.or(below.http),
        }
    }

    fn complete(self) -> Result<Listen, Error> {
        let peer = required(self.peer, "listen.peer", "--listen-peer")?;
        let agent = required(self.agent, "listen.agent", "--listen-agent")?;
        let client = required(self.client, "listen.client", "--listen-client")?;
        let http = required(self.http.or(http_beside(client)), "listen.http", "--listen-http")?;
        Ok(Listen { peer, agent, client, http })
    }
}

impl AdvertiseLayer {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn over(self, below: Self) -> Self {
        Self { peer: self.peer.or(below.peer), agent: self.agent.or(below.agent), client: self.client.or(below.client) }
    }
}

// === impl ServerConfig ===

impl ServerConfig {
    /// Puts flags over a file and checks the whole.
    pub fn merge(file: Option<Layer>, flags: Layer) -> Result<Self, Error> {
        let layer = flags.over(file.unwrap_or_default());
        let listen = layer.listen.complete()?;
        let (policy, explicit_policy) = layer.policy.resolve().map_err(Error::Policy)?;
        let addressing = layer.addressing.resolve().map_err(Error::Addressing)?;
        let config = Self {
            id: required(layer.id, "id", "--id")?,
            fleet: required(layer.fleet, "fleet", "--fleet")?,
            data_dir: required(layer.data_dir, "data_dir", "--data-dir")?,
            tls_dir: required(layer.tls_dir, "tls_dir", "--tls-dir")?,
            advertise: Doors {
                peer: advertised(layer.advertise.peer, listen.peer, "advertise.peer", "--advertise-peer")?,
                agent: advertised(layer.advertise.agent, listen.agent, "advertise.agent", "--advertise-agent")?,
                client: advertised(layer.advertise.client, listen.client, "advertise.client", "--advertise-client")?,
            },
            listen,
            initial_members: layer.initial_members,
            join: layer.join.unwrap_or(false),
            log_format: layer.log_format.unwrap_or_default(),
            policy,
            explicit_policy,
            addressing,
            enrolment: layer.enrolment.resolve()?,
        };
        config.validate()?;
        Ok(config)
    }

    pub fn as_member(&self) -> FleetMember {
        let Doors { peer, agent, client } = self.advertise.clone();
        FleetMember { id: self.id, peer, agent, client }
    }

    fn validate(&self) -> Result<(), Error> {
        if self.id == ReplicaId(0) {
            return invalid("id", "replicas are numbered from 1");
        }
        let Listen { peer, agent, client, http } = self.listen;
        if BTreeSet::from([peer, agent, client, http]).len() < 4 {
            let reason = "the four doors need four addresses; `http` is by default one port above `client`";
            return invalid("listen", reason);
        }
        if self.join { self.validate_joining() } else { self.validate_forming() }
    }

    fn validate_joining(&self) -> Result<(), Error> {
        if self.initial_members.is_empty() {
            return Ok(());
        }
        invalid("join", "a replica either joins a running fleet or is one of `initial_members`, not both")
    }

    fn validate_forming(&self) -> Result<(), Error> {
        unique_members("initial_members", &self.initial_members)?;
        let Some(own) = self.initial_members.iter().find(|member| member.id == self.id) else {
            let reason = format!("replica {} is not among them: add it, or set `join = true` (--join)", self.id);
            return invalid("initial_members", reason);
        };
        if *own != self.as_member() {
            let reason = format!(
                "the addresses of replica {} differ from those it advertises: make `initial_members` and `advertise` \
                 (by default `listen`) agree",
                self.id
            );
            return invalid("initial_members", reason);
        }
        Ok(())
    }
}

fn required<T>(value: Option<T>, key: &'static str, flag: &'static str) -> Result<T, Error> {
    value.ok_or(Error::Missing { key, flag })
}

fn advertised(
    given: Option<HostPort>,
    listen: SocketAddr,
    key: &'static str,
    flag: &'static str,
) -> Result<HostPort, Error> {
    if let Some(given) = given {
        return Ok(given);
    }
    listen.to_string().parse().or_else(|error| invalid(key, format!("{error} with {flag}")))
}

fn invalid<T>(key: &'static str, reason: impl Into<String>) -> Result<T, Error> {
    Err(settings::Error::Invalid { key, reason: reason.into() }.into())
}

#[cfg(test)]
mod tests;
