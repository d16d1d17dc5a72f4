//! Simulated machine: a plausible Node with kubelet's conditions and reasons.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::runtime::SimulatedRuntime;
use crate::machine::AgentMachine;
use crate::pods::{PodUid, RunRecorder, Runtime};

/// Addresses are numbered within 10.0.0.0/8.
const NETWORK: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const HOST_MASK: u32 = 0x00ff_ffff;

#[derive(Debug)]
pub struct SimulatedMachine {
    name: String,
    region: String,
    zone: String,
    address: Ipv4Addr,
    started: Timestamp,
    disk: Mutex<Disk>,
    pods: Arc<SimulatedRuntime>,
}

#[derive(Debug, Clone, Copy)]
struct Disk {
    pressure: bool,
    since: Timestamp,
}

impl SimulatedMachine {
    /// Machines with different numbers below 16,777,215 have different addresses.
    pub fn new(name: &str, region: &str, zone: &str, number: u32) -> Self {
        let started = Timestamp::now();
        Self {
            name: name.to_owned(),
            region: region.to_owned(),
            zone: zone.to_owned(),
            address: Ipv4Addr::from_bits(NETWORK | (number.wrapping_add(1) & HOST_MASK)),
            started,
            disk: Mutex::new(Disk { pressure: false, since: started }),
            pods: Arc::new(SimulatedRuntime::new()),
        }
    }

    /// From now on the machine notes which pods really run on it.
    pub fn record(&self, recorder: RunRecorder) {
        self.pods.record(recorder);
    }

    pub(super) fn pods(&self) -> &SimulatedRuntime {
        &self.pods
    }

    /// Fills the disk or empties it; an unchanged state keeps its transition time.
    pub fn set_disk_pressure(&self, pressure: bool) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.pressure != pressure {
            *disk = Disk { pressure, since: Timestamp::now() };
        }
    }

    fn status(&self) -> Value {
        json!({
            "capacity": resources("32Gi", "100Gi"),
            "allocatable": resources("31Gi", "90Gi"),
            "conditions": self.conditions(),
            "addresses": [
                { "type": "InternalIP", "address": self.address.to_string() },
                { "type": "Hostname", "address": &self.name },
            ],
            "nodeInfo": self.info(),
        })
    }

    /// Pressures first and Ready last, as kubelet orders them (S-5).
    fn conditions(&self) -> Value {
        let disk = *self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let disk_words = match disk.pressure {
            true => ("True", "KubeletHasDiskPressure", "kubelet has disk pressure"),
            false => ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        };
        let memory = ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available");
        let processes = ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available");
        let ready = ("True", "KubeletReady", "kubelet is posting ready status");
        json!([
            condition("MemoryPressure", memory, self.started),
            condition("DiskPressure", disk_words, disk.since),
            condition("PIDPressure", processes, self.started),
            condition("Ready", ready, self.started),
        ])
    }

    fn info(&self) -> Value {
        let identity = xxh3_128(self.name.as_bytes());
        json!({
            "machineID": format!("{identity:032x}"),
            "systemUUID": uuid(identity),
            "bootID": uuid(identity.rotate_left(64)),
            "kernelVersion": "6.12.48",
            "osImage": "Simulated Linux",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": concat!("v1.36.0-muster-", env!("CARGO_PKG_VERSION")),
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        })
    }
}

impl AgentMachine for SimulatedMachine {
    fn node_json(&self) -> Bytes {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": &self.name,
                "labels": {
                    "kubernetes.io/hostname": &self.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": "simulated.8x32",
                    "topology.kubernetes.io/region": &self.region,
                    "topology.kubernetes.io/zone": &self.zone,
                },
            },
            "spec": {},
            "status": self.status(),
        });
        node.to_string().into()
    }

    fn status_json(&self) -> Bytes {
        self.status().to_string().into()
    }

    fn runtime(&self) -> Option<Arc<dyn Runtime>> {
        Some(Arc::clone(&self.pods) as _)
    }
}

fn resources(memory: &str, storage: &str) -> Value {
    json!({ "cpu": "8", "memory": memory, "pods": "110", "ephemeral-storage": storage })
}

fn condition(kind: &str, (status, reason, message): (&str, &str, &str), since: Timestamp) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": seconds(Timestamp::now()),
        "lastTransitionTime": seconds(since),
    })
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Machine ids are written like pod uids.
fn uuid(bits: u128) -> String {
    PodUid(bits).to_string()
}

#[cfg(test)]
mod tests {
    use muster_proto::manifest::node_from_json;

    use super::*;
    use crate::machine::Fingerprint;

    #[test]
    fn the_simulated_node_is_a_valid_manifest() {
        let machine = SimulatedMachine::new("sim-7", "eu", "eu-a", 7);
        let draft = node_from_json(&machine.node_json()).unwrap().draft;
        assert_eq!(&*draft.name, "sim-7");
        let status = draft.status.unwrap();
        let kinds: Vec<_> = status.conditions.iter().map(|condition| condition.kind.to_string()).collect();
        assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
        assert_eq!(&*status.addresses[0].address, "10.0.0.8");
    }

    #[test]
    fn pressure_changes_the_status_and_keeps_it_ready() {
        let machine = SimulatedMachine::new("sim-7", "eu", "eu-a", 7);
        let calm = Fingerprint::of(&machine.status_json());
        machine.set_disk_pressure(true);
        let status: Value = serde_json::from_slice(&machine.status_json()).unwrap();
        assert_eq!(
            (&status["conditions"][1]["status"], &status["conditions"][3]["status"]),
            (&json!("True"), &json!("True"))
        );
        assert_ne!(Fingerprint::of(&machine.status_json()), calm);
    }
}
