//! A Pod at length.

use jiff::Timestamp;
use serde_json::Value;

use super::page::{Page, pairs};
use crate::render::{at, items, or, pod, text};

const CONDITIONS: &[&str] = &["Type", "Status", "LastTransitionTime", "Reason", "Message"];

/// The pod, its state in one line if that is known, and the events about it.
pub fn pod(object: &Value, summary: Option<&str>, events: &[Value], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Name", text(object, &["metadata", "name"]));
    page.field("Namespace", text(object, &["metadata", "namespace"]));
    page.optional("Summary", summary.unwrap_or_default());
    page.field("Priority", &at(object, &["spec", "priority"]).as_i64().unwrap_or(0).to_string());
    page.field("Node", text(object, &["spec", "nodeName"]));
    page.field("Start Time", text(object, &["status", "startTime"]));
    page.list("Labels", &pairs(at(object, &["metadata", "labels"]), "="));
    page.list("Annotations", &pairs(at(object, &["metadata", "annotations"]), ": "));
    page.field("CreationTimestamp", text(object, &["metadata", "creationTimestamp"]));
    page.field("Resource Version", text(object, &["metadata", "resourceVersion"]));
    page.field("Status", &pod::status(object));
    page.optional("Terminates by", &terminates(object));
    page.optional("Reason", text(object, &["status", "reason"]));
    page.optional("Message", text(object, &["status", "message"]));
    page.field("Controlled By", &pod::owner(object));
    page.section("Containers", &containers(at(object, &["spec"])));
    page.table("Conditions", CONDITIONS, &conditions(object));
    page.list("Tolerations", &tolerations(at(object, &["spec"])));
    page.list("Node-Selectors", &pairs(at(object, &["spec", "nodeSelector"]), "="));
    page.events(events, now);
    page.into_text()
}

/// The containers of a pod's spec, each with its image and requests.
pub(super) fn containers(spec: &Value) -> Vec<String> {
    let lines = |container: &Value| {
        let requests = pairs(at(container, &["resources", "requests"]), " ");
        [
            format!("{}:", text(container, &["name"])),
            format!("  Image:     {}", or(text(container, &["image"]), "<none>")),
            format!("  Requests:  {}", or(&requests.join(", "), "<none>")),
        ]
    };
    items(spec, &["containers"]).iter().flat_map(lines).collect()
}

/// As kubectl writes them: `key=value:Effect op=Exists for 300s`.
pub(super) fn tolerations(spec: &Value) -> Vec<String> {
    items(spec, &["tolerations"]).iter().map(toleration).collect()
}

fn toleration(toleration: &Value) -> String {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| text(toleration, &[field]));
    let value = if value.is_empty() { String::new() } else { format!("={value}") };
    let effect = if effect.is_empty() { String::new() } else { format!(":{effect}") };
    // Only equality goes without saying.
    let operator = if matches!(operator, "" | "Equal") { String::new() } else { format!(" op={operator}") };
    let seconds = toleration["tolerationSeconds"].as_i64().map(|seconds| format!(" for {seconds}s"));
    format!("{key}{value}{effect}{operator}{}", seconds.unwrap_or_default()).trim().to_owned()
}

fn terminates(object: &Value) -> String {
    match text(object, &["metadata", "deletionTimestamp"]) {
        "" => String::new(),
        by => {
            let grace = at(object, &["metadata", "deletionGracePeriodSeconds"]).as_i64().unwrap_or(0);
            format!("{by} (grace {grace}s), and goes when its node has stopped it")
        }
    }
}

fn conditions(object: &Value) -> Vec<Vec<String>> {
    let row = |condition: &Value| {
        ["type", "status", "lastTransitionTime", "reason", "message"]
            .map(|key| or(text(condition, &[key]), "<none>"))
            .to_vec()
    };
    items(object, &["status", "conditions"]).iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_has_every_section() {
        let object = json!({
            "metadata": {"name": "web-x", "namespace": "shop", "labels": {"app": "web"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-01T00:01:30Z", "deletionGracePeriodSeconds": 30,
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}]},
            "spec": {"priority": 7, "nodeName": "n1", "nodeSelector": {"disk": "ssd"},
                "containers": [{"name": "app", "image": "i:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
                               {"name": "side"}],
                "tolerations": [
                    {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
                    {"key": "lost", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"operator": "Exists"}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:02Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"}]},
        });
        let event = json!({"type": "Normal", "reason": "Scheduled", "message": "assigned",
            "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "default-scheduler"}});
        let page = pod(&object, Some("terminating since 00:01:00"), &[event], "2026-01-01T00:01:00Z".parse().unwrap());
        for part in [
            "Name:               web-x\nNamespace:          shop\nSummary:            terminating since 00:01:00\n",
            "Priority:           7\nNode:               n1\nStart Time:         2026-01-01T00:00:02Z\n",
            "Labels:             app=web\n",
            "Annotations:        <none>\n",
            "Status:             Terminating\nTerminates by:      2026-01-01T00:01:30Z (grace 30s)",
            "Controlled By:      ReplicaSet/web\n",
            "Containers:\n  app:\n    Image:     i:1\n    Requests:  cpu 100m, memory 64Mi\n  side:\n    Image:     <none>\n",
            "Conditions:\n  Type    Status   LastTransitionTime",
            "Tolerations:        gpu=a:NoSchedule\n                    lost:NoExecute op=Exists for 300s\n                    op=Exists\n",
            "Node-Selectors:     disk=ssd\n",
            "Scheduled   60s   default-scheduler   assigned\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
    }

    #[test]
    fn a_pending_pod_is_described_too() {
        let object = json!({"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": "Pending"}});
        let page = pod(&object, None, &[], "2026-01-01T00:01:00Z".parse().unwrap());
        for part in ["Node:               <none>\n", "Status:             Pending\n", "Events:             <none>\n"] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert!(!page.contains("Terminates"), "{page}");
    }
}
