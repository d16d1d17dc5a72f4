//! What an operator tells a replica or a client: a TOML file, flags, or both.
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
use std::str::FromStr;

use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::invalid;
use muster_lifecycle::policy::Policy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::addressing::{ALLOCATE_NODE_CIDRS, AddressLayer};
pub use self::enrolment::{Enrolment, EnrolmentLayer};
pub use self::policy::PolicyLayer;
use crate::address::HostPort;
use crate::logging::Format;
use crate::pki::FleetId;
use crate::secret;

/// Consensus among more voters only gets slower; no fleet needs more.
const MEMBERS_LIMIT: usize = 9;
const ENDPOINTS_LIMIT: usize = 64;

/// One source of settings, all optional. Flags and files have the same shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<Format>,
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
    pub initial_members: Vec<Member>,
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

/// A replica and where its doors for peers, agents and clients are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub id: u64,
    pub peer: HostPort,
    pub agent: HostPort,
    pub client: HostPort,
}

/// Where a replica listens, door by door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    pub peer: SocketAddr,
    pub agent: SocketAddr,
    pub client: SocketAddr,
    pub http: SocketAddr,
}

/// One value per door that members tell each other of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doors<T> {
    pub peer: T,
    pub agent: T,
    pub client: T,
}

/// A replica's settings, complete and consistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    pub id: u64,
    pub fleet: FleetId,
    pub data_dir: PathBuf,
    pub tls_dir: PathBuf,
    pub listen: Listen,
    pub advertise: Doors<HostPort>,
    /// The founding voters; empty for a replica that joins a running fleet.
    pub initial_members: Vec<Member>,
    pub join: bool,
    pub log_format: Format,
    /// Founds the policy of a cluster that has none yet.
    pub policy: Policy,
    /// The settings among them that somebody wrote down, to be compared with a policy that is founded already.
    pub explicit_policy: BTreeMap<String, String>,
    /// Founds the ranges of node CIDRs in a cluster that has none yet.
    pub addressing: Option<Addressing>,
    /// How long the certificates last that this replica signs for nodes.
    pub enrolment: Enrolment,
}

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

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("{}:{line}: {}{message}", path.display(), key_prefix(key))]
    Syntax { path: PathBuf, line: usize, key: String, message: String },
    #[error("`{key}` is not set: set it in the configuration file or with {flag}")]
    Missing { key: &'static str, flag: &'static str },
    #[error("`{key}`: {reason}")]
    Invalid { key: &'static str, reason: String },
    #[error("`policy.{}` (--{}): {}", .0.field, .0.field, .0.rule)]
    Policy(invalid::Invalid),
    #[error("`addressing.{}` (--{}): {}", .0.field, .0.field, .0.rule)]
    Addressing(invalid::Invalid),
    #[error("{}: `{key}`: {reason}", path.display())]
    InvalidIn { path: PathBuf, key: &'static str, reason: String },
}

// === impl Layer ===

impl Layer {
    /// Reads a file; relative folders in it are relative to the file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let mut layer: Self = parse(path, &secret::read(path)?)?;
        let base = path.parent().unwrap_or(Path::new(""));
        for dir in [&mut layer.data_dir, &mut layer.tls_dir].into_iter().flatten() {
            *dir = base.join(&*dir);
        }
        Ok(layer)
    }

    /// This layer, with `below` shining through where it says nothing.
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

// === impl Member ===

impl FromStr for Member {
    type Err = String;

    /// The form of the flag: `ID=PEER,AGENT,CLIENT`, each `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("{text:?} is not a member: write ID=PEER,AGENT,CLIENT with three HOST:PORT addresses");
        let (id, addresses) = text.split_once('=').ok_or_else(shape)?;
        let id = id.parse().map_err(|_| shape())?;
        let addresses: Vec<_> = addresses.split(',').collect();
        let [peer, agent, client] = addresses.as_slice() else { return Err(shape()) };
        let parse = |address: &str| address.parse::<HostPort>().map_err(|error| error.to_string());
        Ok(Self { id, peer: parse(peer)?, agent: parse(agent)?, client: parse(client)? })
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

    pub fn as_member(&self) -> Member {
        let Doors { peer, agent, client } = self.advertise.clone();
        Member { id: self.id, peer, agent, client }
    }

    fn validate(&self) -> Result<(), Error> {
        if self.id == 0 {
            return invalid("id", "replicas are numbered from 1");
        }
        let Listen { peer, agent, client, http } = self.listen;
        if BTreeSet::from([peer, agent, client, http]).len() < 4 {
            let reason = "the four doors need four addresses; `http` is by default one port above `client`";
            return invalid("listen", reason);
        }
        if self.join { self.validate_joining() } else { self.validate_founding() }
    }

    fn validate_joining(&self) -> Result<(), Error> {
        if self.initial_members.is_empty() {
            return Ok(());
        }
        invalid("join", "a replica either joins a running fleet or is one of `initial_members`, not both")
    }

    fn validate_founding(&self) -> Result<(), Error> {
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

/// The HTTP door stands next to the client door unless somebody puts it elsewhere.
pub fn http_beside(client: SocketAddr) -> Option<SocketAddr> {
    client.port().checked_add(1).map(|port| SocketAddr::new(client.ip(), port))
}

/// Members of one fleet: few, each with its own id and its own addresses.
pub fn unique_members(key: &'static str, members: &[Member]) -> Result<(), Error> {
    if members.len() > MEMBERS_LIMIT {
        return invalid(key, format!("{} are too many: the limit is {MEMBERS_LIMIT}", members.len()));
    }
    let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for member in members {
        if member.id == 0 {
            return invalid(key, "replicas are numbered from 1");
        }
        if !ids.insert(member.id) {
            return invalid(key, format!("id {} is given twice", member.id));
        }
        for address in [&member.peer, &member.agent, &member.client] {
            if !addresses.insert(address) {
                return invalid(key, format!("address {address} is given twice"));
            }
        }
    }
    Ok(())
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Reads a `client.toml` and makes sure that nobody else can read the key it names.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let mut config: Self = parse(path, &secret::read(path)?)?;
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

pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    let syntax = |key: String, error: &toml::de::Error| Error::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        key,
        message: error.message().to_owned(),
    };
    let source = toml::Deserializer::parse(text).map_err(|error| syntax(String::new(), &error))?;
    serde_path_to_error::deserialize(source).map_err(|error| syntax(error.path().to_string(), error.inner()))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The path of an error at the root is a lone dot, which would say nothing.
fn key_prefix(key: &str) -> String {
    if key.is_empty() || key == "." { String::new() } else { format!("`{key}`: ") }
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
    listen.to_string().parse().map_err(|error| Error::Invalid { key, reason: format!("{error} with {flag}") })
}

fn invalid<T>(key: &'static str, reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid { key, reason: reason.into() })
}

#[cfg(test)]
mod tests;
