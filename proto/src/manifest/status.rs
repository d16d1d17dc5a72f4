//! `status` of a Node: resources, conditions, addresses, and what runs on the machine (`nodeInfo`).

use muster_lifecycle::node::{Address, Condition, ConditionStatus, NodeInfo, NodeStatus, Resources};
use muster_lifecycle::quantity::{Quantity, QuantityError};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;
use serde_json::{Map, Value, json};

use super::fields::{Fields, Read, mismatch};
use super::json::Json;
use super::moment;
use crate::field::{Path, Shown};

/// The field that identifies the condition to which an unknown field belongs.
const CONDITION_IDENTITY: [&str; 1] = ["type"];
/// The fields that identify the address to which an unknown field belongs.
const ADDRESS_IDENTITY: [&str; 2] = ["type", "address"];
/// Required upstream, deprecated there and not modelled here: printed empty unless a manifest gave it.
const KUBE_PROXY_VERSION: &str = "kubeProxyVersion";

pub(super) fn read(fields: &mut Fields<'_>) -> Read<NodeStatus> {
    Ok(NodeStatus {
        capacity: resources(fields, "capacity")?,
        allocatable: resources(fields, "allocatable")?,
        conditions: fields.list("conditions", &CONDITION_IDENTITY, condition)?.unwrap_or_default(),
        addresses: fields.list("addresses", &ADDRESS_IDENTITY, address)?.unwrap_or_default(),
        info: fields.object("nodeInfo", info)?.map(Box::new),
    })
}

pub(super) fn write(status: &NodeStatus) -> Value {
    let mut json = Map::new();
    write_resources(&mut json, "capacity", &status.capacity);
    write_resources(&mut json, "allocatable", &status.allocatable);
    if !status.conditions.is_empty() {
        json.insert("conditions".into(), status.conditions.iter().map(write_condition).collect());
    }
    if !status.addresses.is_empty() {
        json.insert("addresses".into(), status.addresses.iter().map(write_address).collect());
    }
    if let Some(info) = &status.info {
        json.insert("nodeInfo".into(), write_info(info));
    }
    Value::Object(json)
}

/// Adds the fields that upstream requires and neither the model nor the manifest had.
pub(super) fn complete(status: &mut Value) {
    if let Some(Value::Object(info)) = status.get_mut("nodeInfo") {
        info.entry(KUBE_PROXY_VERSION).or_insert_with(|| "".into());
    }
}

fn resources(fields: &mut Fields<'_>, name: &str) -> Read<Resources> {
    let entries = fields.entries(name, quantity)?.unwrap_or_default();
    Ok(entries.into_iter().collect())
}

/// As upstream does, a quantity may be a bare number.
pub(super) fn quantity(json: Json<'_>, path: &Path<'_>) -> Read<Quantity> {
    let text = match json {
        Json::Text(text) => text,
        Json::Number(number) => number.to_string().into(),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
            return Err(mismatch(path, "a quantity such as \"500m\" or \"16Gi\"", &json.to_value()));
        }
    };
    text.parse().map_err(|error: QuantityError| path.error(error))
}

fn write_resources(json: &mut Map<String, Value>, name: &str, resources: &Resources) {
    if !resources.is_empty() {
        let entry = |(name, quantity): (&Text, Quantity)| (name.to_string(), quantity.to_string().into());
        let object = resources.iter().map(entry).collect();
        json.insert(name.into(), Value::Object(object));
    }
}

fn condition(fields: &mut Fields<'_>) -> Read<Condition> {
    Ok(Condition {
        kind: fields.required_text("type")?.into(),
        status: fields
            .parsed("status", parse_condition_status)?
            .ok_or_else(|| fields.error("status", format!("is required: {CONDITION_STATUSES}")))?,
        last_heartbeat: moment::read(fields, "lastHeartbeatTime")?,
        last_transition: moment::read(fields, "lastTransitionTime")?,
        reason: text(fields, "reason")?,
        message: text(fields, "message")?,
    })
}

fn write_condition(condition: &Condition) -> Value {
    json!({
        "type": &*condition.kind,
        "status": condition.status.as_str(),
        "lastHeartbeatTime": moment::write_optional(condition.last_heartbeat),
        "lastTransitionTime": moment::write_optional(condition.last_transition),
        "reason": &*condition.reason,
        "message": &*condition.message,
    })
}

/// Dates the conditions by `heard` that the node's own agent vouches for. The others are repeated by their own
/// reporters.
pub(super) fn show_heard(status: &mut Value, conditions: &[Condition], heard: Stamp) {
    let Some(Value::Array(shown)) = status.get_mut("conditions") else { return };
    for (json, condition) in shown.iter_mut().zip(conditions) {
        if condition.is_vouched_for() && condition.last_heartbeat.is_none_or(|known| known.wall < heard.wall) {
            json["lastHeartbeatTime"] = moment::write(heard);
        }
    }
}

const CONDITION_STATUSES: &str = "one of True, False, Unknown";

fn parse_condition_status(text: &str) -> Result<ConditionStatus, String> {
    [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown]
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("{} is not {CONDITION_STATUSES}", Shown(text)))
}

fn address(fields: &mut Fields<'_>) -> Read<Address> {
    Ok(Address { kind: fields.required_text("type")?.into(), address: fields.required_text("address")?.into() })
}

fn write_address(address: &Address) -> Value {
    json!({ "type": &*address.kind, "address": &*address.address })
}

fn info(fields: &mut Fields<'_>) -> Read<NodeInfo> {
    fields.ignore_empty(KUBE_PROXY_VERSION);
    Ok(NodeInfo {
        machine_id: text(fields, "machineID")?,
        system_uuid: text(fields, "systemUUID")?,
        boot_id: text(fields, "bootID")?,
        kernel_version: text(fields, "kernelVersion")?,
        os_image: text(fields, "osImage")?,
        container_runtime_version: text(fields, "containerRuntimeVersion")?,
        kubelet_version: text(fields, "kubeletVersion")?,
        operating_system: text(fields, "operatingSystem")?,
        architecture: text(fields, "architecture")?,
        swap_capacity: fields.object("swap", |swap| swap.integer("capacity"))?.flatten(),
    })
}

fn write_info(info: &NodeInfo) -> Value {
    let mut json = json!({
        "machineID": &*info.machine_id,
        "systemUUID": &*info.system_uuid,
        "bootID": &*info.boot_id,
        "kernelVersion": &*info.kernel_version,
        "osImage": &*info.os_image,
        "containerRuntimeVersion": &*info.container_runtime_version,
        "kubeletVersion": &*info.kubelet_version,
        "operatingSystem": &*info.operating_system,
        "architecture": &*info.architecture,
    });
    if let Some(capacity) = info.swap_capacity {
        json["swap"] = json!({ "capacity": capacity });
    }
    json
}

fn text(fields: &mut Fields<'_>, name: &str) -> Read<Text> {
    Ok(fields.text(name)?.unwrap_or_default().into())
}
