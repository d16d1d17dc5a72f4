//! A Node as a real agent would register it, for loads that must not flatter.

use anyhow::{Context, Result};
use muster_lifecycle::command::{Command, Operation};
use muster_lifecycle::meta::Uid;
use muster_proto::manifest::node_from_json;
use serde_json::{Value, json};

use crate::ledger;

/// What the agent of the `number`th machine asks for when it comes up.
pub fn registration(number: usize) -> Result<Command> {
    let draft = node_from_json(manifest(number).to_string().as_bytes()).context("the manifest")?.draft;
    let (draft, uid) = (Box::new(draft), Uid(number as u128));
    Ok(ledger::by_agent(Operation::RegisterNode { draft, uid, running: None }))
}

/// The manifest of the `number`th machine.
pub fn manifest(number: usize) -> Value {
    let name = format!("node-{number:07}");
    let (zone, rack) = (number % 3, number / 40);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m5.2xlarge",
                "topology.kubernetes.io/region": "eu-1",
                "topology.kubernetes.io/zone": format!("eu-1{zone}"),
                "rack": format!("r{rack}"),
                "pool": "general",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": format!("sim:///eu-1{zone}/i-{number:016x}")},
        "status": {
            "capacity": resources("8", "32614140Ki"),
            "allocatable": resources("7910m", "31487740Ki"),
            "conditions": conditions(),
            "addresses": [
                {"type": "InternalIP", "address": format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "machineID": format!("{number:032x}"),
                "systemUUID": format!("{number:08x}-0000-4000-8000-000000000000"),
                "bootID": format!("{number:08x}-1111-4111-8111-111111111111"),
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
