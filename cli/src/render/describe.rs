//! Objects at length, in the layout of `kubectl describe`; here a Node.

mod page;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::Value;

use self::page::{Page, pairs};
use super::{age, at, items, node, or, text};

pub use self::pod::pod;
pub use self::workload::workload;

const CONDITIONS: &[&str] = &["Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message"];
/// Title and key of each fact that an agent reports about its machine.
const SYSTEM_INFO: [(&str, &str); 9] = [
    ("Machine ID", "machineID"),
    ("System UUID", "systemUUID"),
    ("Boot ID", "bootID"),
    ("Kernel Version", "kernelVersion"),
    ("OS Image", "osImage"),
    ("Operating System", "operatingSystem"),
    ("Architecture", "architecture"),
    ("Container Runtime Version", "containerRuntimeVersion"),
    ("Kubelet Version", "kubeletVersion"),
];

/// The node, its state in one line if that is known, and the events about it.
pub fn describe(object: &Value, summary: Option<&str>, events: &[Value], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Name", text(object, &["metadata", "name"]));
    page.optional("Summary", summary.unwrap_or_default());
    page.field("Roles", &node::roles(object));
    page.field("Zone", &node::zone_key(object));
    page.list("Labels", &pairs(at(object, &["metadata", "labels"]), "="));
    page.list("Annotations", &pairs(at(object, &["metadata", "annotations"]), ": "));
    page.field("CreationTimestamp", text(object, &["metadata", "creationTimestamp"]));
    page.field("Resource Version", text(object, &["metadata", "resourceVersion"]));
    page.list("Taints", &taints(object, now));
    page.field("Unschedulable", if node::unschedulable(object) { "true" } else { "false" });
    page.table("Conditions", CONDITIONS, &conditions(object));
    page.section("Addresses", &addresses(object));
    page.section("Capacity", &pairs(at(object, &["status", "capacity"]), ": "));
    page.section("Allocatable", &pairs(at(object, &["status", "allocatable"]), ": "));
    page.section("System Info", &system_info(object));
    page.optional("PodCIDRs", &node::pod_cidrs(object));
    page.optional("ProviderID", text(object, &["spec", "providerID"]));
    page.events(events, now);
    page.into_text()
}

/// With the time they were added, where that is known: tolerations count from there.
fn taints(object: &Value, now: Timestamp) -> Vec<String> {
    let added = items(object, &["spec", "taints"]).iter().map(|taint| text(taint, &["timeAdded"]));
    let line = |(taint, added): (String, &str)| match added {
        "" => taint,
        added => format!("{taint} (since {added}, {})", age::since(added, now)),
    };
    node::taints(object).into_iter().zip(added).map(line).collect()
}

fn conditions(object: &Value) -> Vec<Vec<String>> {
    let row = |condition: &Value| {
        ["type", "status", "lastHeartbeatTime", "lastTransitionTime", "reason", "message"]
            .map(|key| or(text(condition, &[key]), "<none>"))
            .to_vec()
    };
    items(object, &["status", "conditions"]).iter().map(row).collect()
}

fn addresses(object: &Value) -> Vec<String> {
    let line = |address: &Value| format!("{}: {}", text(address, &["type"]), text(address, &["address"]));
    items(object, &["status", "addresses"]).iter().map(line).collect()
}

fn system_info(object: &Value) -> Vec<String> {
    let info = at(object, &["status", "nodeInfo"]);
    if info.is_null() {
        return Vec::new();
    }
    let line = |(title, key): &(&str, &str)| format!("{:27}{}", format!("{title}:"), text(info, &[key]));
    SYSTEM_INFO.iter().map(line).map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_has_every_section() {
        let node = json!({
            "metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {
                "b": "2", "a": "1", "topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1"}},
            "spec": {"unschedulable": true, "podCIDRs": ["10.1.0.0/24"],
                     "taints": [{"key": "gpu", "effect": "NoSchedule"},
                                {"key": "lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:20Z"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "capacity": {"cpu": "4"},
                "nodeInfo": {"kubeletVersion": "v1.33.0"},
            },
        });
        let event = json!({"type": "Normal", "reason": "RegisteredNode", "message": "hello",
            "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "node-controller"}});
        let page = describe(&node, Some("ready since 00:00:00"), &[event], "2026-01-01T00:01:00Z".parse().unwrap());
        for part in [
            "Name:               n1\n",
            "Summary:            ready since 00:00:00\n",
            "Zone:               r1/z1\n",
            "Labels:             a=1\n                    b=2\n                    topology",
            "Annotations:        <none>\n",
            "Taints:             gpu:NoSchedule\n                    lost:NoExecute (since 2026-01-01T00:00:20Z, 40s)\n",
            "Unschedulable:      true\n",
            "Conditions:\n  Type ",
            "Addresses:\n  InternalIP: 10.0.0.1\n",
            "Capacity:\n  cpu: 4\n",
            "Allocatable:        <none>\n",
            "Kubelet Version:           v1.33.0\n",
            "PodCIDRs:           10.1.0.0/24\n",
            "RegisteredNode   60s   node-controller   hello\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
    }
}
