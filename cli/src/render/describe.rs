//! A Node at length, in the layout of `kubectl describe node`.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::{age, at, event, items, node, or, table, text};

const KEY_WIDTH: usize = 20;
const CONDITIONS: &[&str] = &["Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message"];
const EVENTS: &[&str] = &["Type", "Reason", "Age", "From", "Message"];
/// Title and key of what an agent reports about its machine.
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

/// The node, how it stands in one line if that is known, and the events about it.
pub fn describe(object: &Value, standing: Option<&str>, events: &[Value], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Name", text(object, &["metadata", "name"]));
    page.optional("Standing", standing.unwrap_or_default());
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
    let cidrs: Vec<&str> = items(object, &["spec", "podCIDRs"]).iter().filter_map(Value::as_str).collect();
    page.optional("PodCIDRs", &cidrs.join(","));
    page.optional("ProviderID", text(object, &["spec", "providerID"]));
    page.table("Events", EVENTS, &events.iter().map(|event| event_row(event, now)).collect::<Vec<_>>());
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

// === impl Page ===

impl Page {
    fn field(&mut self, key: &str, value: &str) {
        self.line(format_args!("{:KEY_WIDTH$}{}", format!("{key}:"), or(value, "<none>")));
    }

    fn optional(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.field(key, value);
        }
    }

    /// The first value beside the key, the others below it.
    fn list(&mut self, key: &str, values: &[String]) {
        self.field(key, values.first().map_or("", String::as_str));
        for value in values.iter().skip(1) {
            self.line(format_args!("{:KEY_WIDTH$}{value}", ""));
        }
    }

    fn section(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return self.field(title, "");
        }
        self.line(format_args!("{title}:"));
        for line in lines {
            self.line(format_args!("  {line}"));
        }
    }

    fn table(&mut self, title: &str, headers: &'static [&'static str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return self.field(title, "");
        }
        let mut lines = table::render(headers, rows, true);
        let mut rule = table::Table::new(headers);
        rule.fit(rows);
        let dashes: Vec<String> = headers.iter().map(|header| "-".repeat(header.len())).collect();
        lines.insert(1, rule.row(&dashes));
        self.section(title, &lines);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

fn pairs(object: &Value, separator: &str) -> Vec<String> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let mut pairs: Vec<String> = object
        .as_object()
        .map(|fields| fields.iter().map(|(key, value)| format!("{key}{separator}{}", shown(value))).collect())
        .unwrap_or_default();
    pairs.sort();
    pairs
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

fn event_row(object: &Value, now: Timestamp) -> Vec<String> {
    let [seen, kind, reason, _, message] = <[String; 5]>::try_from(event::row(object, now)).unwrap_or_default();
    let from = or(text(object, &["source", "component"]), "<unknown>");
    let seen = if seen.is_empty() { age::human(0) } else { seen };
    vec![kind, reason, seen, from, message]
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
            "Standing:           ready since 00:00:00\n",
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
