//! Settings of the machine: addresses, reserved resources, and thresholds of pressure.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::flag::{BadFlag, Checked};
use super::settings::{Layers, Pick};
use crate::conditions::{NetworkCheck, NetworkProbe, TRANSITION_PERIOD, Thresholds, duration};
use crate::facts::{MAX_PODS, NodeIps, Reservations, Reserved};

/// More than the cluster places on one node.
const PODS_MAX: u32 = 1024;
const TCP: &str = "tcp://";

#[derive(Debug, Clone)]
pub struct MachineSettings {
    /// Absent: the machine's own.
    pub hostname: Option<String>,
    pub node_ips: NodeIps,
    pub external_ips: Vec<IpAddr>,
    pub max_pods: u32,
    pub reservations: Reservations,
    pub thresholds: Thresholds,
    pub transition_period: Duration,
    pub condition_dir: Option<PathBuf>,
    pub network: Option<NetworkCheck>,
}

impl Layers {
    pub(super) fn machine(&self) -> Result<MachineSettings, BadFlag> {
        let transition: Pick = |layer| &layer.eviction_pressure_transition_period;
        Ok(MachineSettings {
            hostname: self
                .value("hostname-override", |layer| &layer.hostname_override)
                .map(|name| name.word.to_owned()),
            node_ips: self.parsed("node-ip", |layer| &layer.node_ip, node_ips)?.unwrap_or_default(),
            external_ips: self
                .parsed("node-external-ip", |layer| &layer.node_external_ip, external_ips)?
                .unwrap_or_default(),
            max_pods: self.parsed("max-pods", |layer| &layer.max_pods, max_pods)?.unwrap_or(MAX_PODS),
            reservations: Reservations {
                system: self.parsed("system-reserved", |layer| &layer.system_reserved, reserved)?.unwrap_or_default(),
                kube: self.parsed("kube-reserved", |layer| &layer.kube_reserved, reserved)?.unwrap_or_default(),
            },
            thresholds: self.thresholds()?,
            transition_period: self
                .parsed("eviction-pressure-transition-period", transition, period)?
                .unwrap_or(TRANSITION_PERIOD),
            condition_dir: self.condition_dir()?,
            network: self.parsed("network-check", |layer| &layer.network_check, network_check)?,
        })
    }

    fn thresholds(&self) -> Result<Thresholds, BadFlag> {
        let flags: [(&'static str, Pick); 4] = [
            ("eviction-hard", |layer| &layer.eviction_hard),
            ("eviction-soft", |layer| &layer.eviction_soft),
            ("eviction-soft-grace-period", |layer| &layer.eviction_soft_grace_period),
            ("eviction-minimum-reclaim", |layer| &layer.eviction_minimum_reclaim),
        ];
        let given = flags.map(|(flag, pick)| self.value(flag, pick));
        let [hard, soft, grace, reclaim] = given.each_ref().map(|given| given.as_ref().map(|given| given.word));
        Thresholds::parse(hard, soft, grace, reclaim).map_err(|error| {
            let named = |flag: &str| error.flag.trim_start_matches('-') == flag;
            let culprit = given.into_iter().zip(flags).find(|(_, (flag, _))| named(flag)).and_then(|(given, _)| given);
            match culprit {
                Some(given) => given.wrong_item(&error.item, error.rule),
                None => BadFlag::new("eviction-hard", error.item, error.rule),
            }
        })
    }

    fn condition_dir(&self) -> Result<Option<PathBuf>, BadFlag> {
        let Some((path, given)) = self.path("condition-dir", |layer| &layer.condition_dir)? else { return Ok(None) };
        match path.is_dir() {
            true => Ok(Some(path)),
            false => Err(given.wrong("is not a directory")),
        }
    }
}

fn node_ips(text: &str) -> Checked<NodeIps> {
    text.parse::<NodeIps>().map_err(|error| (error.value, error.rule))
}

/// A machine cannot find out its external address, so an unspecified one is refused.
fn external_ips(text: &str) -> Checked<Vec<IpAddr>> {
    let addresses = node_ips(text)?.addresses().to_vec();
    match addresses.iter().find(|address| address.is_unspecified()) {
        Some(any) => Err((any.to_string(), "it must be an address that others can reach".to_owned())),
        None => Ok(addresses),
    }
}

fn reserved(text: &str) -> Checked<Reserved> {
    text.parse::<Reserved>().map_err(|error| (error.item, error.rule))
}

fn period(text: &str) -> Checked<Duration> {
    duration(text).map_err(|_| (text.to_owned(), "write a duration such as 10s or 1m30s".to_owned()))
}

fn max_pods(text: &str) -> Checked<u32> {
    let rule = || (text.to_owned(), format!("must be a number from 0 to {PODS_MAX}"));
    text.parse().ok().filter(|count| *count <= PODS_MAX).ok_or_else(rule)
}

/// The arguments of a program are separated by blanks; a script serves for anything more.
fn network_check(text: &str) -> Checked<NetworkCheck> {
    let wrong = || (text.to_owned(), "write tcp://HOST:PORT, or a program with its arguments".to_owned());
    if let Some(address) = text.strip_prefix(TCP) {
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let is_usable = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0);
        return is_usable.then(|| NetworkCheck::new(NetworkProbe::Tcp(address.to_owned()))).ok_or_else(wrong);
    }
    let mut words = text.split_whitespace().map(str::to_owned);
    let program = words.next().ok_or_else(wrong)?;
    Ok(NetworkCheck::new(NetworkProbe::Command { program, arguments: words.collect() }))
}
