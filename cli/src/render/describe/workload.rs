//! A ReplicaSet, StatefulSet or DaemonSet at length.

use jiff::Timestamp;
use serde_json::Value;

use super::page::{Page, pairs};
use super::pod::{containers, tolerations};
use crate::render::workload::{Counts, counts, selector};
use crate::render::{at, text};

/// The workload and the events about it.
pub fn workload(object: &Value, events: &[Value], now: Timestamp) -> String {
    let template = at(object, &["spec", "template"]);
    let Counts { desired, current, ready } = counts(object);
    let mut page = Page::default();
    page.field("Name", text(object, &["metadata", "name"]));
    page.field("Namespace", text(object, &["metadata", "namespace"]));
    page.field("Kind", text(object, &["kind"]));
    page.field("Selector", &selector(object));
    page.list("Labels", &pairs(at(object, &["metadata", "labels"]), "="));
    page.list("Annotations", &pairs(at(object, &["metadata", "annotations"]), ": "));
    page.field("CreationTimestamp", text(object, &["metadata", "creationTimestamp"]));
    page.field("Resource Version", text(object, &["metadata", "resourceVersion"]));
    page.field("Pods", &format!("{desired} desired, {current} current, {ready} ready"));
    page.list("Pod Labels", &pairs(at(template, &["metadata", "labels"]), "="));
    page.section("Containers", &containers(at(template, &["spec"])));
    page.list("Tolerations", &tolerations(at(template, &["spec"])));
    page.list("Node-Selectors", &pairs(at(template, &["spec", "nodeSelector"]), "="));
    page.events(events, now);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_names_selector_and_pod_counts() {
        let object = json!({
            "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}},
            "status": {"replicas": 2, "readyReplicas": 1},
        });
        let page = workload(&object, &[], "2026-01-01T00:01:00Z".parse().unwrap());
        for part in [
            "Name:               web\nNamespace:          shop\nKind:               ReplicaSet\n",
            "Selector:           app=web\n",
            "Pods:               3 desired, 2 current, 1 ready\n",
            "Pod Labels:         app=web\n",
            "Containers:\n  c:\n    Image:     i:1\n    Requests:  <none>\n",
            "Tolerations:        <none>\n",
            "Events:             <none>\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
    }
}
