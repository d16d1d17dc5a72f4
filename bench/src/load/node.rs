//! Nodes of the load: manifests as large as those that real agents register, so that the figures do not flatter.

use std::fmt::Write as _;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use muster_lifecycle::command::{AgentOperation, Command};
use muster_lifecycle::meta::Uid;
use muster_proto::manifest::node_from_json;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation as Write;
use serde_json::{Value, json};

use crate::harness::local_state;

/// Prefix of all names.
pub(crate) const PREFIX: &str = "node-";
/// Zones of the nodes, in turns.
pub(crate) const ZONES: usize = 3;

/// The command that registers the `number`th machine.
pub fn registration(number: usize) -> Result<Command> {
    let draft = node_from_json(manifest(number).as_bytes()).context("the manifest")?.draft;
    let (draft, uid) = (Box::new(draft), Uid(number as u128));
    Ok(local_state::by_agent(AgentOperation::RegisterNode { draft, uid, running: None }))
}

pub(crate) fn name(number: usize) -> String {
    format!("{PREFIX}{number:07}")
}

pub(crate) fn number(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// The zone label of the `number`th machine.
pub(crate) fn zone(number: usize) -> String {
    format!("eu-1{}", number % ZONES)
}

/// The manifest of the `number`th machine.
pub(crate) fn manifest(number: usize) -> String {
    MANIFEST.render(number)
}

/// The status that the `number`th machine posts from time to time.
pub(crate) fn status(number: usize) -> String {
    STATUS.render(number)
}

/// The write that creates the `number`th node, or leaves it as it is.
pub(crate) fn apply(number: usize) -> Write {
    Write::Apply(v1::ManifestWrite { object: manifest(number).into() })
}

/// The write that sets a label of the `number`th node.
pub(crate) fn set_label(number: usize, key: &str, value: String) -> Write {
    Write::Label(v1::PairsEdit {
        name: name(number),
        set: [(key.to_owned(), value)].into(),
        overwrite: true,
        ..v1::PairsEdit::default()
    })
}

static MANIFEST: LazyLock<Template> = LazyLock::new(|| Template::new(&pattern()));
static STATUS: LazyLock<Template> = LazyLock::new(|| Template::new(&pattern()["status"]));

/// JSON text with gaps: rendering a million of them is copying.
struct Template(Vec<(String, Option<Gap>)>);

#[derive(Debug, Clone, Copy)]
enum Gap {
    Name,
    Zone,
    Rack,
    Address,
    Wide,
    Narrow,
}

const GAPS: [(&str, Gap); 6] = [
    ("@name@", Gap::Name),
    ("@zone@", Gap::Zone),
    ("@rack@", Gap::Rack),
    ("@address@", Gap::Address),
    ("@wide@", Gap::Wide),
    ("@narrow@", Gap::Narrow),
];

// === impl Template ===

impl Template {
    fn new(pattern: &Value) -> Self {
        let (text, mut parts) = (pattern.to_string(), Vec::new());
        let mut rest = text.as_str();
        let next = |text: &str| {
            GAPS.iter().filter_map(|(mark, gap)| Some((text.find(mark)?, mark.len(), *gap))).min_by_key(|(at, ..)| *at)
        };
        while let Some((at, length, gap)) = next(rest) {
            parts.push((rest[..at].to_owned(), Some(gap)));
            rest = &rest[at + length..];
        }
        parts.push((rest.to_owned(), None));
        Self(parts)
    }

    fn render(&self, number: usize) -> String {
        let mut text = String::with_capacity(4 << 10);
        for (literal, gap) in &self.0 {
            text.push_str(literal);
            if let Some(gap) = gap {
                gap.fill(number, &mut text);
            }
        }
        text
    }
}

// === impl Gap ===

impl Gap {
    fn fill(self, number: usize, text: &mut String) {
        // Writing to a String does not fail.
        let _ = match self {
            Self::Name => write!(text, "{PREFIX}{number:07}"),
            Self::Zone => write!(text, "eu-1{}", number % ZONES),
            Self::Rack => write!(text, "r{}", number / 40),
            Self::Address => {
                write!(text, "10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
            }
            Self::Wide => write!(text, "{number:032x}"),
            Self::Narrow => write!(text, "{number:08x}"),
        };
    }
}

fn pattern() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "@name@",
            "labels": {
                "kubernetes.io/hostname": "@name@",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m5.2xlarge",
                "topology.kubernetes.io/region": "eu-1",
                "topology.kubernetes.io/zone": "@zone@",
                "rack": "@rack@",
                "pool": "general",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": "sim:///@zone@/i-@wide@"},
        "status": {
            "capacity": resources("8", "32614140Ki"),
            "allocatable": resources("7910m", "31487740Ki"),
            "conditions": conditions(),
            "addresses": [
                {"type": "InternalIP", "address": "@address@"},
                {"type": "Hostname", "address": "@name@"},
            ],
            "nodeInfo": {
                "machineID": "@wide@",
                "systemUUID": "@narrow@-0000-4000-8000-000000000000",
                "bootID": "@narrow@-1111-4111-8111-111111111111",
                "kernelVersion": "6.1.0-31-cloud-amd64",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://1.7.24",
                "kubeletVersion": "v1.33.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    })
}

fn resources(cpu: &str, memory: &str) -> Value {
    json!({
        "cpu": cpu,
        "memory": memory,
        "ephemeral-storage": "101430960Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": "110",
    })
}

fn conditions() -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": "2026-11-01T10:00:00Z",
            "lastTransitionTime": "2026-11-01T09:00:00Z",
        })
    };
    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_manifest_is_valid_and_unique() {
        let draft = node_from_json(manifest(123_456).as_bytes()).unwrap().draft;
        assert_eq!((&*draft.name, number(&draft.name)), ("node-0123456", Some(123_456)));
        let labels = draft.labels.unwrap();
        assert_eq!(labels.get("topology.kubernetes.io/zone").map(|zone| &**zone), Some(&*zone(123_456)));
        assert!(!manifest(7).contains('@'));
        assert_ne!(manifest(7), manifest(8));
        let status: Value = serde_json::from_str(&status(7)).unwrap();
        assert_eq!(status["addresses"][0]["address"], "10.0.0.7");
    }
}
