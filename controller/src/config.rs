//! What an operator tells a replica or a client: a TOML file, flags, or both.
//!
//! File and flags are two [`Layer`]s of the same shape; merging gives the flags precedence and turns the result into a
//! [`ServerConfig`] that needs no further checks. Values are parsed while the file is read, so that a mistake is
//! reported with file, line and key.

mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use muster_lifecycle::policy::Policy;
use muster_lifecycle::rejection;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
    Policy(rejection::Invalid),
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
mod tests {
    use super::*;

    const FILE: &str = r#"
id = 1
fleet = "0f0e0d0c-0b0a-4909-8807-060504030201"
data_dir = "data"
tls_dir = "/etc/muster/tls"

[listen]
peer = "127.0.0.1:7400"
agent = "127.0.0.1:7401"
client = "127.0.0.1:7402"

[[initial_members]]
id = 1
peer = "127.0.0.1:7400"
agent = "127.0.0.1:7401"
client = "127.0.0.1:7402"
"#;

    #[test]
    fn a_file_alone_is_enough_and_its_folders_are_relative_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig::merge(Some(load(dir.path(), FILE).unwrap()), Layer::default()).unwrap();
        assert_eq!(config.id, 1);
        assert_eq!(config.data_dir, dir.path().join("data"));
        assert_eq!(config.tls_dir, Path::new("/etc/muster/tls"));
        assert_eq!(config.advertise.client.to_string(), "127.0.0.1:7402");
        assert_eq!(config.log_format, Format::Text);
        assert_eq!(config.initial_members, [config.as_member()]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags =
            Layer { data_dir: Some("/var/lib/muster".into()), log_format: Some(Format::Json), ..Layer::default() };
        let config = ServerConfig::merge(Some(layer(FILE)), flags).unwrap();
        assert_eq!(config.data_dir, Path::new("/var/lib/muster"));
        assert_eq!(config.log_format, Format::Json);
        assert_eq!(config.id, 1);
    }

    #[test]
    fn what_a_layer_writes_it_reads() {
        let layer = layer(FILE);
        assert_eq!(toml::from_str::<Layer>(&toml::to_string(&layer).unwrap()).unwrap(), layer);
    }

    #[test]
    fn a_mistake_in_the_file_is_named_with_file_line_and_key() {
        for (from, to, expected) in [
            ("id = 1\nfleet", "idd = 1\nfleet", &["config.toml:2", "idd"][..]),
            ("id = 1\nfleet", "id = \"one\"\nfleet", &["config.toml:2", "`id`"]),
            ("0f0e0d0c", "0F0E0D0C", &["config.toml:3", "`fleet`", "not a fleet id"]),
            ("peer = \"127.0.0.1:7400\"\nagent", "peer = \"nowhere\"\nagent", &["config.toml:8", "`listen.peer`"]),
            (
                "client = \"127.0.0.1:7402\"\n\n",
                "client = \"127.0.0.1:7402\"\nadmin = 1\n\n",
                &["config.toml:11", "admin"],
            ),
            ("[listen]", "[listen", &["config.toml:7"]),
        ] {
            let text = FILE.replacen(from, to, 1);
            assert_ne!(text, FILE, "{from}");
            let dir = tempfile::tempdir().unwrap();
            let message = load(dir.path(), &text).unwrap_err().to_string();
            for part in expected {
                assert!(message.contains(part), "{to}: {message}");
            }
        }
    }

    #[test]
    fn a_bad_member_is_named_with_its_place() {
        let text =
            format!("{FILE}\n[[initial_members]]\nid = 2\npeer = \"host:0\"\nagent = \"a:1\"\nclient = \"a:2\"\n");
        let dir = tempfile::tempdir().unwrap();
        let message = load(dir.path(), &text).unwrap_err().to_string();
        assert!(message.contains("config.toml:20") && message.contains("initial_members[1].peer"), "{message}");
    }

    #[test]
    fn a_missing_key_is_named_with_its_flag() {
        for (key, flag) in [("id", "--id"), ("fleet", "--fleet"), ("data_dir", "--data-dir"), ("tls_dir", "--tls-dir")]
        {
            let line = FILE.lines().find(|line| line.starts_with(key)).unwrap();
            let message = merge(&FILE.replacen(line, "", 1)).unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")) && message.contains(flag), "{message}");
        }
        let message = ServerConfig::merge(None, Layer::default()).unwrap_err().to_string();
        assert!(message.contains("listen.peer") && message.contains("--listen-peer"), "{message}");
    }

    #[test]
    fn contradictions_are_refused() {
        let second = "\n[[initial_members]]\nid = 1\npeer = \"b:1\"\nagent = \"b:2\"\nclient = \"b:3\"\n";
        let clash = "\n[[initial_members]]\nid = 2\npeer = \"127.0.0.1:7400\"\nagent = \"b:2\"\nclient = \"b:3\"\n";
        for (text, part) in [
            (FILE.replacen("id = 1", "id = 0", 1), "numbered from 1"),
            (FILE.replacen("id = 1", "id = 2", 1), "replica 2 is not among them"),
            (FILE.replacen("id = 1", "id = 1\njoin = true", 1), "not both"),
            (format!("{FILE}{second}"), "id 1 is given twice"),
            (format!("{FILE}{clash}"), "127.0.0.1:7400 is given twice"),
            (FILE.replacen("127.0.0.1:7401", "127.0.0.1:7400", 1), "four addresses"),
            (FILE.replacen("127.0.0.1:7401", "127.0.0.1:7411", 1), "differ from those it advertises"),
            (FILE.replacen("127.0.0.1:7400", "0.0.0.0:7400", 1), "--advertise-peer"),
        ] {
            let message = merge(&text).unwrap_err().to_string();
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn flags_win_over_the_file_setting_by_setting_and_only_what_was_written_is_explicit() {
        let file = format!("{FILE}\n[policy]\nnode-monitor-period = \"1s\"\nnode-eviction-rate = 1\n");
        let mut flags = PolicyLayer::default();
        flags.set("node-monitor-period", "2000ms").unwrap();
        let config = ServerConfig::merge(Some(layer(&file)), Layer { policy: flags, ..Layer::default() }).unwrap();
        let wanted = [("node-eviction-rate", "1"), ("node-monitor-period", "2s")];
        assert_eq!(config.explicit_policy, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(config.policy.node_monitor_period.to_string(), "2s");
        assert_eq!(config.policy.node_monitor_grace_period, Policy::default().node_monitor_grace_period);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_by_name() {
        let file = format!("{FILE}\n[policy]\nnode-monitor-period = \"50s\"\n");
        let wanted = "`policy.node-monitor-period` (--node-monitor-period): 50s is above node-monitor-grace-period (40s): \
                      shorten the period or lengthen the grace period";
        assert_eq!(merge(&file).unwrap_err().to_string(), wanted);
        assert_eq!(merge(FILE).unwrap().policy, Policy::default());
    }

    #[test]
    fn the_http_door_is_next_to_the_client_door_unless_it_is_put_elsewhere() {
        assert_eq!(merge(FILE).unwrap().listen.http.to_string(), "127.0.0.1:7403");
        let given = FILE.replacen("[listen]", "[listen]\nhttp = \"127.0.0.9:80\"", 1);
        assert_eq!(merge(&given).unwrap().listen.http.to_string(), "127.0.0.9:80");
        let flags = ListenLayer { http: "127.0.0.8:443".parse().ok(), ..ListenLayer::default() };
        let flags = Layer { listen: flags, ..Layer::default() };
        let flagged = ServerConfig::merge(Some(layer(&given)), flags).unwrap();
        assert_eq!(flagged.listen.http.to_string(), "127.0.0.8:443");
    }

    #[test]
    fn without_a_port_above_the_client_door_the_http_door_has_to_be_named() {
        let last = FILE.replace("127.0.0.1:7402", "127.0.0.1:65535");
        let message = merge(&last).unwrap_err().to_string();
        assert!(message.contains("`listen.http`") && message.contains("--listen-http"), "{message}");
        let taken = FILE.replace("127.0.0.1:7400", "127.0.0.1:7403");
        assert!(merge(&taken).unwrap_err().to_string().contains("one port above `client`"));
    }

    #[test]
    fn a_joining_replica_needs_no_members() {
        let founding = FILE.find("[[initial_members]]").unwrap();
        let config = merge(&FILE[..founding].replacen("id = 1", "id = 4\njoin = true", 1)).unwrap();
        assert!(config.join && config.initial_members.is_empty());
    }

    #[test]
    fn a_member_can_be_written_as_a_flag() {
        let member: Member = "2=a:1,b:2,[::1]:3".parse().unwrap();
        assert_eq!((member.id, member.client.to_string()), (2, "[::1]:3".to_owned()));
        for text in ["", "2", "2=a:1,b:2", "x=a:1,b:2,c:3", "2=a:1,b:2,c:3,d:4", "2=a:1,b:2,c"] {
            assert!(text.parse::<Member>().is_err(), "{text}");
        }
    }

    fn load(dir: &Path, text: &str) -> Result<Layer, Error> {
        let path = dir.join("config.toml");
        std::fs::write(&path, text).unwrap();
        Layer::load(&path)
    }

    fn layer(text: &str) -> Layer {
        toml::from_str(text).unwrap()
    }

    fn merge(text: &str) -> Result<ServerConfig, Error> {
        ServerConfig::merge(Some(layer(text)), Layer::default())
    }
}
