//! Command line of an agent. [`settings`](super::settings) gives the values their meaning and adds those of the
//! configuration file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

pub(super) const STATE_DIR: &str = "/var/lib/muster-agent";

const AFTER_HELP: &str = "\
Exit codes:
  0  stopped by SIGTERM or SIGINT: the session is closed, pods go on running
  1  something on this machine failed: see the message
  2  a flag, a key of the configuration file or a credential is invalid; nothing was contacted
  3  no answer: from no replica when joining, or from no agent for `status`
  6  the control plane refused to let this machine join

The log's filter is RUST_LOG, as in RUST_LOG=info,muster_node_agent=debug.";

/// The node agent of Muster: registers this machine, reports its status, and runs its pods.
#[derive(Debug, Parser)]
#[command(name = "muster-agent", version)]
pub struct AgentCli {
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// The arguments of `muster-agent` and `muster agent`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct AgentArgs {
    #[command(subcommand)]
    pub verb: Option<AgentVerb>,
    #[command(flatten)]
    pub layer: Box<SettingsLayer>,
    /// A TOML file with the names of these flags as keys; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A one-time token of `muster token create`, needed once per machine: @FILE reads it from a file, @- from
    /// the input, where `ps` does not show it
    #[arg(long, value_name = "@FILE|TOKEN")]
    pub join: Option<JoinArgument>,
}

/// The value of `--join`. It may be a secret and must not reach a log through a derived `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinArgument(pub String);

#[derive(Debug, Subcommand)]
pub enum AgentVerb {
    /// Show what the agent of this machine is doing
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The state directory of the agent
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
    /// How to show it
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub output: String,
}

/// One source of settings, as written. Flags and files use the same names.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SettingsLayer {
    /// The agents' addresses of the replicas
    #[arg(long, value_name = "HOST:PORT,...")]
    pub server: Option<RawValue>,
    /// The directory of the agent's key, certificate and pod records [default: /var/lib/muster-agent]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<RawValue>,
    /// Credentials issued elsewhere, used instead of --join: a kubeconfig with a client certificate
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<RawValue>,
    /// The node's name [default: the host name, in lower case]
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<RawValue>,
    /// Create the Node if it does not exist; =false waits for an operator to create it [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub register_node: Option<RawValue>,
    /// Taints that the Node is created with, as key=value:Effect
    #[arg(long, value_name = "TAINT,...")]
    pub register_with_taints: Option<RawValue>,
    /// The node's addresses, one per family [default: of the interface of the default route]
    #[arg(long, value_name = "IP,...")]
    pub node_ip: Option<RawValue>,
    /// Addresses at which the node is reached from outside, one per family [default: none]
    #[arg(long, value_name = "IP,...")]
    pub node_external_ip: Option<RawValue>,
    /// Labels that the Node is created with, as key=value
    #[arg(long, value_name = "LABEL,...")]
    pub node_labels: Option<RawValue>,
    /// How often to sample the machine; if given, also how often to post an unchanged status [default: 10s, and 5m]
    #[arg(long, value_name = "TIME")]
    pub node_status_update_frequency: Option<RawValue>,
    /// The cloud's id of this machine, as PROVIDER://ID
    #[arg(long, value_name = "ID")]
    pub provider_id: Option<RawValue>,
    /// Comes with cloud sync; until then every value is an error
    #[arg(long, value_name = "NAME")]
    pub cloud_provider: Option<RawValue>,
    /// What runs the pods: process, or none to keep records only [default: process]
    #[arg(long, value_name = "RUNTIME")]
    pub runtime: Option<RawValue>,
    /// The most pods that this machine may run [default: 110]
    #[arg(long, value_name = "COUNT")]
    pub max_pods: Option<RawValue>,
    /// Reserved for the system, as in cpu=100m,memory=200Mi,ephemeral-storage=1Gi
    #[arg(long, value_name = "RESOURCE=AMOUNT,...")]
    pub system_reserved: Option<RawValue>,
    /// Reserved for the agent
    #[arg(long, value_name = "RESOURCE=AMOUNT,...")]
    pub kube_reserved: Option<RawValue>,
    /// Hard eviction thresholds [default: memory.available<100Mi,nodefs.available<10%,...]
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_hard: Option<RawValue>,
    /// Soft eviction thresholds, each with a grace period
    #[arg(long, value_name = "SIGNAL<AMOUNT,...")]
    pub eviction_soft: Option<RawValue>,
    /// Grace periods of the soft eviction thresholds
    #[arg(long, value_name = "SIGNAL=TIME,...")]
    pub eviction_soft_grace_period: Option<RawValue>,
    /// How much more must be available before a pressure is over
    #[arg(long, value_name = "SIGNAL=AMOUNT,...")]
    pub eviction_minimum_reclaim: Option<RawValue>,
    /// How long a pressure must be absent before it is over [default: 5m]
    #[arg(long, value_name = "TIME")]
    pub eviction_pressure_transition_period: Option<RawValue>,
    /// A directory of executables, each of which checks one condition of this machine
    #[arg(long, value_name = "DIR")]
    pub condition_dir: Option<RawValue>,
    /// A check of the network: tcp://HOST:PORT, or a program with its arguments [default: no check]
    #[arg(long, value_name = "CHECK")]
    pub network_check: Option<RawValue>,
    /// Where metrics are served, or none; other addresses than loopback need TLS [default: 127.0.0.1:7490]
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_address: Option<RawValue>,
    /// A certificate (PEM) to serve metrics with
    #[arg(long, value_name = "FILE")]
    pub metrics_tls_cert: Option<RawValue>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE")]
    pub metrics_tls_key: Option<RawValue>,
    /// How logs are written: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<RawValue>,
}

/// A value as written. In a file, numbers and booleans need no quotes, and lists may be lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawValue(pub String);

// === impl JoinArgument ===

impl FromStr for JoinArgument {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for JoinArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinArgument(…)")
    }
}

// === impl RawValue ===

impl FromStr for RawValue {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false, or a list of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<RawValue, E> {
        Ok(RawValue(truth.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawValue, E> {
        Ok(RawValue(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut words: Vec<String> = Vec::new();
        while let Some(item) = items.next_element()? {
            words.push(item);
        }
        Ok(RawValue(words.join(",")))
    }
}
