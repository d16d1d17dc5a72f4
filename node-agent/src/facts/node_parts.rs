//! Parts of a Kubernetes Node that carry the facts.

use std::collections::BTreeMap;

use muster_lifecycle::name;
use serde_json::{Value, json};

use super::capacity::{Reservations, ResourceAmounts};
use super::{Facts, identity};
use crate::conditions::Thresholds;

const OPERATING_SYSTEM: &str = "linux";

#[derive(Debug, Clone, PartialEq)]
pub struct NodeParts {
    /// `metadata.labels`: the labels that every node has (RG-2).
    pub labels: BTreeMap<String, String>,
    /// `status.addresses`.
    pub addresses: Value,
    /// `status.capacity`.
    pub capacity: Value,
    /// `status.allocatable`.
    pub allocatable: Value,
    /// `status.nodeInfo`.
    pub node_info: Value,
}

impl Facts {
    pub fn node_parts(&self, reservations: &Reservations, thresholds: &Thresholds) -> NodeParts {
        NodeParts {
            labels: self.labels(),
            addresses: self.addresses_json(),
            capacity: resources_json(&self.capacity.resources()),
            allocatable: resources_json(&self.capacity.allocatable(reservations, thresholds)),
            node_info: self.node_info(),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let architecture = identity::architecture();
        let mut labels: BTreeMap<_, _> = [
            ("kubernetes.io/os", OPERATING_SYSTEM),
            ("beta.kubernetes.io/os", OPERATING_SYSTEM),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/arch", architecture),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        // Host names may be longer than label values; a refused label would keep the node from registering.
        if let Some(hostname) = self.hostname.as_deref().filter(|hostname| name::label_value(hostname).is_ok()) {
            labels.insert("kubernetes.io/hostname".to_owned(), hostname.to_owned());
        }
        labels
    }

    fn addresses_json(&self) -> Value {
        let internal = self.internal_ips.iter().map(|address| ("InternalIP", address.to_string()));
        let external = self.external_ips.iter().map(|address| ("ExternalIP", address.to_string()));
        let hostname = self.hostname.iter().map(|hostname| ("Hostname", hostname.clone()));
        let all = internal.chain(external).chain(hostname);
        all.map(|(kind, address)| json!({ "type": kind, "address": address })).collect()
    }

    fn node_info(&self) -> Value {
        let identity = &self.identity;
        let mut info = json!({
            "machineID": &identity.machine_id,
            "systemUUID": &identity.system_uuid,
            "bootID": &identity.boot_id,
            "kernelVersion": &identity.kernel,
            "osImage": &identity.os_image,
            "containerRuntimeVersion": &self.runtime_version,
            "kubeletVersion": &self.agent_version,
            "operatingSystem": OPERATING_SYSTEM,
            "architecture": identity::architecture(),
        });
        // NV-5: a machine without swap omits the field.
        if self.swap > 0 {
            info["swap"] = json!({ "capacity": i64::try_from(self.swap).unwrap_or(i64::MAX) });
        }
        info
    }
}

fn resources_json(resources: &ResourceAmounts) -> Value {
    let entry =
        |(name, amount): (&String, &muster_lifecycle::quantity::Quantity)| (name.clone(), amount.to_string().into());
    Value::Object(resources.iter().map(entry).collect())
}
