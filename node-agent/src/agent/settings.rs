//! Settings of an agent: flags and a file, merged and checked before anything is contacted.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_lifecycle::taint::Taint;
use muster_proto::token::{Token, TokenError};

use super::args::{AgentArgs, JoinArgument, RawValue, STATE_DIR, SettingsLayer};
use super::exit::AgentError;
use super::flag::{self, BadFlag, Checked};
use super::kubeconfig::{Kubeconfig, require_secret};
use super::log::AgentLogFormat;
use super::machine_settings::MachineSettings;
use crate::connection::{Endpoint, SessionSetupError};
use crate::machine::REPORT_EVERY;

/// S-1: how often the machine is observed.
const UPDATE_EVERY: Duration = Duration::from_secs(10);
const METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7490);
/// A longer file is not a configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub struct AgentSettings {
    /// The node's name.
    pub node: String,
    pub join: Option<Token>,
    pub server: Vec<String>,
    pub state_dir: PathBuf,
    pub kubeconfig: Option<Kubeconfig>,
    pub register_node: bool,
    pub taints: Vec<Taint>,
    pub labels: BTreeMap<String, String>,
    pub provider_id: Option<String>,
    /// How often the machine is observed.
    pub update_every: Duration,
    /// How often an unchanged status is posted.
    pub report_every: Duration,
    pub machine: MachineSettings,
    pub runtime: RuntimeKind,
    pub metrics: Option<MetricsEndpoint>,
    pub log_format: AgentLogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    Process,
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsEndpoint {
    pub address: SocketAddr,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
}

// === impl AgentSettings ===

impl AgentSettings {
    /// `hostname` is this machine's own name.
    pub fn new(args: AgentArgs, hostname: &str) -> Result<Self, AgentError> {
        let file = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let layers = Layers { flags: *args.layer, file, path: args.config };
        layers.refuse("cloud-provider", |layer| &layer.cloud_provider, "comes with cloud sync: leave the flag out")?;
        let update: Pick = |layer| &layer.node_status_update_frequency;
        let update_every = layers.parsed("node-status-update-frequency", update, flag::update_frequency)?;
        let kubeconfig = layers.path("kubeconfig", |layer| &layer.kubeconfig)?;
        let kubeconfig = kubeconfig.map(|(path, given)| Kubeconfig::read(&path).map_err(|rule| given.wrong(rule)));
        let kubeconfig = kubeconfig.transpose()?;
        Ok(Self {
            node: layers.node(hostname)?,
            join: args.join.as_ref().map(token).transpose()?,
            server: layers.server(kubeconfig.as_ref())?,
            state_dir: layers
                .path("state-dir", |layer| &layer.state_dir)?
                .map_or_else(|| STATE_DIR.into(), |(path, _)| path),
            kubeconfig,
            register_node: layers.parsed("register-node", |layer| &layer.register_node, flag::boolean)?.unwrap_or(true),
            taints: layers
                .parsed("register-with-taints", |layer| &layer.register_with_taints, flag::taints)?
                .unwrap_or_default(),
            labels: layers.parsed("node-labels", |layer| &layer.node_labels, flag::labels)?.unwrap_or_default(),
            provider_id: layers.parsed("provider-id", |layer| &layer.provider_id, flag::provider_id)?,
            update_every: update_every.unwrap_or(UPDATE_EVERY),
            report_every: update_every.unwrap_or(REPORT_EVERY),
            machine: layers.machine()?,
            runtime: layers.parsed("runtime", |layer| &layer.runtime, runtime)?.unwrap_or(RuntimeKind::Process),
            metrics: layers.metrics()?,
            log_format: layers.parsed("log-format", |layer| &layer.log_format, log_format)?.unwrap_or_default(),
        })
    }
}

/// Parses the token, which errors must not repeat. In the output of `muster token create` it is the last line.
fn token(JoinArgument(word): &JoinArgument) -> Result<Token, BadFlag> {
    let (shown, text) = match word.strip_prefix('@') {
        None => ("…", word.clone()),
        Some(source) => (word.as_str(), read_secret(source).map_err(|rule| BadFlag::new("join", word, rule))?),
    };
    let line = text.trim_end().lines().last().unwrap_or_default();
    line.parse().map_err(|error: TokenError| BadFlag::new("join", shown, error.to_string()))
}

fn read_secret(source: &str) -> Result<String, String> {
    if source == "-" {
        return read_all(std::io::stdin());
    }
    require_secret(Path::new(source)).and_then(|()| read_bounded(Path::new(source)))
}

fn runtime(text: &str) -> Checked<RuntimeKind> {
    flag::one_of(text, &[("process", RuntimeKind::Process), ("none", RuntimeKind::None)])
}

fn log_format(text: &str) -> Checked<AgentLogFormat> {
    flag::one_of(text, &[("text", AgentLogFormat::Text), ("json", AgentLogFormat::Json)])
}

fn read_file(path: &Path) -> Result<SettingsLayer, AgentError> {
    let wrong = |rule: String| AgentError::usage(BadFlag::new("config", path.display().to_string(), rule));
    let text = read_bounded(path).map_err(wrong)?;
    toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
        wrong(format!("line {line}: {}", error.message().replace('\n', " ")))
    })
}

pub(super) fn read_bounded(path: &Path) -> Result<String, String> {
    std::fs::File::open(path).map_err(|error| error.to_string()).and_then(read_all)
}

fn read_all(source: impl Read) -> Result<String, String> {
    let mut text = String::new();
    source.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("is larger than {FILE_BYTES_MAX} bytes")),
        false => Ok(text),
    }
}

/// Flags win over the file.
pub(super) struct Layers {
    flags: SettingsLayer,
    file: SettingsLayer,
    path: Option<PathBuf>,
}

/// A value with its flag and its source.
pub(super) struct Given<'a> {
    flag: &'static str,
    pub(super) word: &'a str,
    file: Option<&'a Path>,
}

pub(super) type Pick = fn(&SettingsLayer) -> &Option<RawValue>;

// === impl Given ===

impl Given<'_> {
    pub(super) fn wrong(&self, rule: impl Into<String>) -> BadFlag {
        self.wrong_item(self.word, rule)
    }

    pub(super) fn wrong_item(&self, item: &str, rule: impl Into<String>) -> BadFlag {
        BadFlag { file: self.file.map(Path::to_owned), ..BadFlag::new(self.flag, item, rule) }
    }

    fn parse<T>(&self, parse: impl FnOnce(&str) -> Checked<T>) -> Result<T, BadFlag> {
        parse(self.word).map_err(|(item, rule)| self.wrong_item(&item, rule))
    }
}

// === impl Layers ===

impl Layers {
    pub(super) fn value(&self, flag: &'static str, pick: Pick) -> Option<Given<'_>> {
        if let Some(RawValue(word)) = pick(&self.flags) {
            return Some(Given { flag, word, file: None });
        }
        let file = self.path.as_deref();
        pick(&self.file).as_ref().map(|RawValue(word)| Given { flag, word, file })
    }

    pub(super) fn parsed<T>(
        &self,
        flag: &'static str,
        pick: Pick,
        parse: impl FnOnce(&str) -> Checked<T>,
    ) -> Result<Option<T>, BadFlag> {
        self.value(flag, pick).map(|given| given.parse(parse)).transpose()
    }

    pub(super) fn path(&self, flag: &'static str, pick: Pick) -> Result<Option<(PathBuf, Given<'_>)>, BadFlag> {
        let Some(given) = self.value(flag, pick) else { return Ok(None) };
        match given.word.is_empty() {
            true => Err(given.wrong("must not be empty")),
            false => Ok(Some((PathBuf::from(given.word), given))),
        }
    }

    fn refuse(&self, flag: &'static str, pick: Pick, rule: &str) -> Result<(), BadFlag> {
        self.value(flag, pick).map_or(Ok(()), |given| Err(given.wrong(rule)))
    }

    fn node(&self, hostname: &str) -> Result<String, AgentError> {
        if let Some(node) = self.parsed("hostname-override", |layer| &layer.hostname_override, flag::node_name)? {
            return Ok(node);
        }
        flag::node_name(hostname).map_err(|(own, rule)| {
            AgentError::usage(format!(
                "this machine's host name {own:?}: {rule}; give the node a name with --hostname-override"
            ))
        })
    }

    fn server(&self, kubeconfig: Option<&Kubeconfig>) -> Result<Vec<String>, AgentError> {
        let Some(given) = self.value("server", |layer| &layer.server) else {
            let known = kubeconfig.and_then(|kubeconfig| kubeconfig.server.clone());
            return known.map(|server| vec![server]).ok_or_else(no_server);
        };
        let server = flag::list(given.word);
        match Endpoint::list(&server) {
            Ok(_) => Ok(server),
            Err(SessionSetupError::Endpoint(item)) => Err(given.wrong_item(&item, ENDPOINT_RULE).into()),
            Err(error) => Err(given.wrong(error.to_string()).into()),
        }
    }

    fn metrics(&self) -> Result<Option<MetricsEndpoint>, BadFlag> {
        let given = self.value("metrics-address", |layer| &layer.metrics_address);
        let address = given.as_ref().map(|given| given.parse(flag::metrics_address)).transpose()?;
        let certificate = self.path("metrics-tls-cert", |layer| &layer.metrics_tls_cert)?;
        let key = self.path("metrics-tls-key", |layer| &layer.metrics_tls_key)?;
        let tls = match (certificate, key) {
            (Some((certificate, _)), Some((key, _))) => Some((certificate, key)),
            (None, None) => None,
            (Some((_, given)), None) => return Err(given.wrong("needs --metrics-tls-key beside it")),
            (None, Some((_, given))) => return Err(given.wrong("needs --metrics-tls-cert beside it")),
        };
        let Some(address) = address.unwrap_or(Some(METRICS_ADDRESS)) else { return Ok(None) };
        match given {
            Some(given) if !address.ip().is_loopback() && tls.is_none() => {
                Err(given.wrong("is not a loopback address and needs --metrics-tls-cert and --metrics-tls-key"))
            }
            Some(_) | None => Ok(Some(MetricsEndpoint { address, tls })),
        }
    }
}

const ENDPOINT_RULE: &str = "write HOST:PORT, or [HOST]:PORT for IPv6";

fn no_server() -> AgentError {
    AgentError::usage("--server is needed: give the agents' addresses of the replicas, as HOST:PORT,HOST:PORT,...")
}
