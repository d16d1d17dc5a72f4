//! A Pod as a row.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, at, items, or, text};

pub const HEADERS: &[&str] = &["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
pub const WIDE_HEADERS: &[&str] = &["NAME", "READY", "STATUS", "RESTARTS", "AGE", "NODE", "OWNER"];

/// The column of the pod's status.
pub const STATUS_COLUMN: usize = 2;

pub fn row(pod: &Value, wide: bool, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        text(pod, &["metadata", "name"]).to_owned(),
        ready(pod),
        status(pod),
        restarts(pod).to_string(),
        age::since(text(pod, &["metadata", "creationTimestamp"]), now),
    ];
    if wide {
        row.extend([or(text(pod, &["spec", "nodeName"]), "<none>"), or(&owner(pod), "<none>")]);
    }
    row
}

/// The most important fact: that it terminates, why it is not running, or how far it has come.
pub fn status(pod: &Value) -> String {
    if !text(pod, &["metadata", "deletionTimestamp"]).is_empty() {
        return "Terminating".into();
    }
    match text(pod, &["status", "reason"]) {
        "" => or(text(pod, &["status", "phase"]), "Unknown"),
        reason => reason.to_owned(),
    }
}

/// The owner: `ReplicaSet/web`, or nothing.
pub fn owner(pod: &Value) -> String {
    let owners = items(pod, &["metadata", "ownerReferences"]);
    let controller = owners.iter().find(|owner| owner["controller"] == true);
    controller.map(|owner| format!("{}/{}", text(owner, &["kind"]), text(owner, &["name"]))).unwrap_or_default()
}

fn ready(pod: &Value) -> String {
    let statuses = items(pod, &["status", "containerStatuses"]);
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    format!("{ready}/{}", statuses.len().max(items(pod, &["spec", "containers"]).len()))
}

fn restarts(pod: &Value) -> u64 {
    let statuses = items(pod, &["status", "containerStatuses"]);
    statuses.iter().filter_map(|status| at(status, &["restartCount"]).as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::table;

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "web-x", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"kind": "Gadget", "name": "g"},
                    {"kind": "ReplicaSet", "name": "web", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2},
                {"name": "b", "ready": false, "restartCount": 1},
            ]},
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    #[test]
    fn a_table_looks_like_kubectls() {
        let lines = table::render(HEADERS, &[row(&pod(), false, now())], true);
        assert_eq!(lines[0], "NAME    READY   STATUS    RESTARTS   AGE");
        assert_eq!(lines[1], "web-x   1/2     Running   3          5m");
        assert_eq!(HEADERS[STATUS_COLUMN], "STATUS");
    }

    #[test]
    fn wide_adds_the_node_and_the_owner() {
        let wide = row(&pod(), true, now());
        assert_eq!(wide.len(), WIDE_HEADERS.len());
        assert_eq!(wide[5..], ["n1", "ReplicaSet/web"]);
        let bare = row(&json!({"metadata": {"name": "bare"}}), true, now());
        assert_eq!(bare, ["bare", "0/0", "Unknown", "0", "<unknown>", "<none>", "<none>"]);
    }

    #[test]
    fn status_is_terminating_then_the_reason_then_the_phase() {
        let mut pod = json!({"status": {"phase": "Pending"}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!((status(&pod), ready(&pod)), ("Pending".into(), "0/1".into()));
        pod["status"]["reason"] = "Evicted".into();
        assert_eq!(status(&pod), "Evicted");
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(status(&pod), "Terminating");
    }
}
