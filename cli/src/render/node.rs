//! A Node as a row.

use jiff::Timestamp;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::ZoneKey;
use serde_json::Value;

use super::{age, at, items, or, text};

pub const HEADERS: &[&str] = &["NAME", "STATUS", "ROLES", "AGE", "VERSION"];
pub const WIDE_HEADERS: &[&str] = &[
    "NAME",
    "STATUS",
    "ROLES",
    "AGE",
    "VERSION",
    "INTERNAL-IP",
    "EXTERNAL-IP",
    "OS-IMAGE",
    "KERNEL-VERSION",
    "CONTAINER-RUNTIME",
    "ZONE",
    "TAINTS",
    "POD-CIDRS",
];

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

pub fn row(node: &Value, wide: bool, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        text(node, &["metadata", "name"]).to_owned(),
        status(node),
        roles(node),
        age::since(text(node, &["metadata", "creationTimestamp"]), now),
        info(node, "kubeletVersion"),
    ];
    if wide {
        row.extend([
            address(node, "InternalIP"),
            address(node, "ExternalIP"),
            info(node, "osImage"),
            info(node, "kernelVersion"),
            info(node, "containerRuntimeVersion"),
            zone(node),
            or(&taints(node).join(","), "<none>"),
            or(&pod_cidrs(node), "<none>"),
        ]);
    }
    row
}

/// `Ready`, `NotReady` or, before the first report, `Unknown`; and whether it was cordoned.
pub fn status(node: &Value) -> String {
    let ready = items(node, &["status", "conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let health = match ready.map(|condition| text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match unschedulable(node) {
        true => format!("{health},SchedulingDisabled"),
        false => health.into(),
    }
}

pub fn unschedulable(node: &Value) -> bool {
    at(node, &["spec", "unschedulable"]).as_bool().unwrap_or(false)
}

pub fn roles(node: &Value) -> String {
    let Some(labels) = at(node, &["metadata", "labels"]).as_object() else { return "<none>".into() };
    let mut roles: Vec<&str> = labels
        .iter()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == ROLE_LABEL),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), "<none>")
}

/// As `key=value:Effect`.
pub fn taints(node: &Value) -> Vec<String> {
    let taint = |taint: &Value| match (text(taint, &["key"]), text(taint, &["value"]), text(taint, &["effect"])) {
        (key, "", effect) => format!("{key}:{effect}"),
        (key, value, effect) => format!("{key}={value}:{effect}"),
    };
    items(node, &["spec", "taints"]).iter().map(taint).collect()
}

/// The addresses it has for its pods.
pub fn pod_cidrs(node: &Value) -> String {
    items(node, &["spec", "podCIDRs"]).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

fn zone(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]);
    let zone = ZONE_LABELS.iter().find_map(|label| labels[*label].as_str());
    or(zone.unwrap_or_default(), "<none>")
}

/// Where the node is counted when zones are judged: `region/zone`, or `default`.
pub fn zone_key(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]).as_object();
    let texts = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.into(), value.as_str()?.into())));
    ZoneKey::from_labels(&texts.collect::<Vec<(Text, Text)>>().into_iter().collect()).to_string()
}

fn address(node: &Value, kind: &str) -> String {
    let addresses = items(node, &["status", "addresses"]);
    let found = addresses.iter().find(|address| address["type"] == kind);
    or(found.map_or("", |address| text(address, &["address"])), "<none>")
}

fn info(node: &Value, key: &str) -> String {
    or(text(node, &["status", "nodeInfo", key]), "<unknown>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::table;

    fn node() -> Value {
        json!({
            "metadata": {
                "name": "n1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                    "node-role.kubernetes.io/worker": "",
                    "node-role.kubernetes.io/edge": "",
                    "topology.kubernetes.io/zone": "az1",
                },
            },
            "spec": {"podCIDRs": ["10.1.0.0/24", "fd00::/64"], "taints": [
                {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
                {"key": "flaky", "effect": "NoExecute"},
            ]},
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.33.0", "osImage": "Debian 13"},
            },
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    #[test]
    fn a_table_looks_like_kubectls() {
        let lines = table::render(HEADERS, &[row(&node(), false, now())], true);
        assert_eq!(lines[0], "NAME   STATUS   ROLES         AGE   VERSION");
        assert_eq!(lines[1], "n1     Ready    edge,worker   5m    v1.33.0");
    }

    #[test]
    fn wide_adds_addresses_system_zone_taints_and_cidrs() {
        let row = row(&node(), true, now());
        assert_eq!(row.len(), WIDE_HEADERS.len());
        assert_eq!(
            row[5..],
            [
                "10.0.0.1",
                "<none>",
                "Debian 13",
                "<unknown>",
                "<unknown>",
                "az1",
                "gpu=a100:NoSchedule,flaky:NoExecute",
                "10.1.0.0/24,fd00::/64",
            ]
        );
    }

    #[test]
    fn status_is_ready_not_ready_or_unknown_and_shows_a_cordon() {
        let cases = [
            (json!([{"type": "Ready", "status": "True"}]), false, "Ready"),
            (json!([{"type": "Ready", "status": "False"}]), false, "NotReady"),
            (json!([{"type": "Ready", "status": "Unknown"}]), false, "NotReady"),
            (json!([]), false, "Unknown"),
            (Value::Null, true, "Unknown,SchedulingDisabled"),
            (json!([{"type": "Ready", "status": "True"}]), true, "Ready,SchedulingDisabled"),
        ];
        for (conditions, unschedulable, expected) in cases {
            let node = json!({"spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}});
            assert_eq!(status(&node), expected, "{node}");
        }
    }

    #[test]
    fn z_1_the_zone_of_a_node_is_read_from_its_labels() {
        let mut labelled = node();
        assert_eq!(zone_key(&labelled), "/az1");
        labelled["metadata"]["labels"]["failure-domain.beta.kubernetes.io/region"] = "old".into();
        labelled["metadata"]["labels"]["topology.kubernetes.io/region"] = "new".into();
        assert_eq!(zone_key(&labelled), "old/az1");
        assert_eq!(zone_key(&json!({})), "default");
    }

    #[test]
    fn a_bare_node_still_makes_a_row() {
        let row = row(&json!({"metadata": {"name": "bare"}}), true, now());
        assert_eq!(row[..5], ["bare", "Unknown", "<none>", "<unknown>", "<unknown>"]);
        assert_eq!(row[11..], ["<none>", "<none>"]);
    }
}
