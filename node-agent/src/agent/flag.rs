//! Values of flags: each is checked before anything is contacted, and an error names the flag and the value.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_lifecycle::name;
use muster_lifecycle::node_restriction::is_open_label;
use muster_lifecycle::taint::{Effect, Taint};
use thiserror::Error;

use crate::conditions::duration;

const UPDATE_MIN: Duration = Duration::from_secs(1);
const UPDATE_MAX: Duration = Duration::from_secs(3600);
/// NV-1: the id addresses a machine and is short.
const PROVIDER_ID_MAX: usize = 1024;

/// A value that a flag or a key of the configuration file must not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct BadFlag {
    pub flag: &'static str,
    pub value: String,
    pub rule: String,
    /// The configuration file with this value; none if the command line gave it.
    pub file: Option<PathBuf>,
}

impl BadFlag {
    pub fn new(flag: &'static str, value: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { flag, value: value.into(), rule: rule.into(), file: None }
    }
}

impl fmt::Display for BadFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {:?}: {}", self.flag, self.value, self.rule)?;
        match &self.file {
            Some(file) => write!(f, " (set in {})", file.display()),
            None => Ok(()),
        }
    }
}

/// The error holds the wrong item and the rule it breaks.
pub(super) type Checked<T> = Result<T, (String, String)>;

fn wrong<T>(item: &str, rule: impl Into<String>) -> Checked<T> {
    Err((item.to_owned(), rule.into()))
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

pub(super) fn list(text: &str) -> Vec<String> {
    items(text).map(str::to_owned).collect()
}

/// RG-2: `key=value:Effect` or `key:Effect`, separated by commas.
pub(super) fn taints(text: &str) -> Checked<Vec<Taint>> {
    let mut taints: Vec<Taint> = Vec::new();
    for item in items(text) {
        let parsed = taint(item).or_else(|rule| wrong(item, rule))?;
        if taints.iter().any(|known| known.is_same(&parsed)) {
            return wrong(item, "this key and effect are given twice");
        }
        taints.push(parsed);
    }
    Ok(taints)
}

fn taint(item: &str) -> Result<Taint, String> {
    let (rest, effect) = item.rsplit_once(':').ok_or("write key=value:Effect or key:Effect")?;
    let effect: Effect = effect.parse().map_err(|_| "effect must be NoSchedule, PreferNoSchedule or NoExecute")?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    name::qualified_name(key).map_err(|rule| format!("key {rule}"))?;
    name::label_value(value).map_err(|rule| format!("value {rule}"))?;
    Ok(Taint { key: key.into(), value: value.into(), effect, added: None })
}

/// `key=value`, separated by commas. Labels that the cluster would refuse (NR-4) are refused here.
pub(super) fn labels(text: &str) -> Checked<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for item in items(text) {
        let (key, value) = label(item).or_else(|rule| wrong(item, rule))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return wrong(item, "this key is given twice");
        }
    }
    Ok(labels)
}

fn label(item: &str) -> Result<(&str, &str), String> {
    let (key, value) = item.split_once('=').ok_or("write key=value")?;
    name::qualified_name(key).map_err(|rule| format!("key {rule}"))?;
    name::label_value(value).map_err(|rule| format!("value {rule}"))?;
    match is_open_label(key) {
        true => Ok((key, value)),
        false => Err("a node may not give itself this label (NR-4): an operator can, with `muster label node`".into()),
    }
}

/// Names are converted to lower case, as upstream does.
pub(super) fn node_name(text: &str) -> Checked<String> {
    let lower = text.trim().to_lowercase();
    name::host_name(&lower).map_err(|rule| (text.to_owned(), rule.to_string()))?;
    Ok(lower)
}

pub(super) fn update_frequency(text: &str) -> Checked<Duration> {
    match duration(text) {
        Ok(duration) if (UPDATE_MIN..=UPDATE_MAX).contains(&duration) => Ok(duration),
        Ok(_) => wrong(text, "must be from 1s to 1h"),
        Err(_) => wrong(text, "write a duration such as 10s or 1m30s"),
    }
}

pub(super) fn boolean(text: &str) -> Checked<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => wrong(text, "must be true or false"),
    }
}

pub(super) fn provider_id(text: &str) -> Checked<String> {
    match text.len() {
        0 => wrong(text, "must not be empty: leave the flag out"),
        length if length > PROVIDER_ID_MAX => wrong("…", format!("must have at most {PROVIDER_ID_MAX} characters")),
        _ if !text.contains("://") => wrong(text, "write PROVIDER://ID, as clouds name their machines"),
        _ => Ok(text.to_owned()),
    }
}

/// Where metrics are served; `none` for nowhere.
pub(super) fn metrics_address(text: &str) -> Checked<Option<SocketAddr>> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).or_else(|_| wrong(text, "write IP:PORT, or none to serve no metrics")),
    }
}

pub(super) fn one_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Checked<T> {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    let found = choices.iter().find(|(name, _)| *name == text);
    found.map_or_else(|| wrong(text, format!("must be {}", names.join(" or "))), |(_, choice)| Ok(*choice))
}
