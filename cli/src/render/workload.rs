//! A ReplicaSet, StatefulSet or DaemonSet as a row: how many pods it wants, has, and has ready.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, at, items, or, text};

pub const HEADERS: &[&str] = &["NAME", "DESIRED", "CURRENT", "READY", "AGE"];
pub const WIDE_HEADERS: &[&str] = &["NAME", "DESIRED", "CURRENT", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"];
/// Columns of StatefulSets, as kubectl shows them.
pub const STATEFUL_HEADERS: &[&str] = &["NAME", "READY", "AGE"];
pub const STATEFUL_WIDE_HEADERS: &[&str] = &["NAME", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"];

/// Counts of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub desired: u64,
    pub current: u64,
    pub ready: u64,
}

pub fn row(workload: &Value, wide: bool, now: Timestamp) -> Vec<String> {
    let Counts { desired, current, ready } = counts(workload);
    let mut row = vec![text(workload, &["metadata", "name"]).to_owned()];
    match is_stateful(workload) {
        true => row.push(format!("{ready}/{desired}")),
        false => row.extend([desired, current, ready].map(|count| count.to_string())),
    }
    row.push(age::since(text(workload, &["metadata", "creationTimestamp"]), now));
    if wide {
        row.extend([each(workload, "name"), each(workload, "image"), or(&selector(workload), "<none>")]);
    }
    row
}

/// What the spec asks for and what there is; how many a DaemonSet wants follows from the nodes.
pub fn counts(workload: &Value) -> Counts {
    let count = |path: [&str; 2]| at(workload, &path).as_u64().unwrap_or(0);
    match text(workload, &["kind"]) == "DaemonSet" {
        true => Counts {
            desired: count(["status", "desiredNumberScheduled"]),
            current: count(["status", "currentNumberScheduled"]),
            ready: count(["status", "numberReady"]),
        },
        false => Counts {
            desired: count(["spec", "replicas"]),
            current: count(["status", "replicas"]),
            ready: count(["status", "readyReplicas"]),
        },
    }
}

/// The selector of its pods, as `-l` takes it.
pub fn selector(workload: &Value) -> String {
    let labels = at(workload, &["spec", "selector", "matchLabels"]).as_object().into_iter().flatten();
    let mut pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    pairs.join(",")
}

fn is_stateful(workload: &Value) -> bool {
    text(workload, &["kind"]) == "StatefulSet"
}

/// The value of a key in every container.
fn each(workload: &Value, key: &str) -> String {
    let containers = items(workload, &["spec", "template", "spec", "containers"]);
    or(&containers.iter().map(|container| text(container, &[key])).collect::<Vec<_>>().join(","), "<none>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::table;

    fn workload(kind: &str) -> Value {
        json!({
            "kind": kind,
            "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"tier": "x", "app": "web"}},
                "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}},
            },
            "status": {
                "replicas": 2, "readyReplicas": 1,
                "desiredNumberScheduled": 9, "currentNumberScheduled": 8, "numberReady": 7,
            },
        })
    }

    fn row_of(kind: &str, wide: bool) -> Vec<String> {
        row(&workload(kind), wide, "2026-01-01T00:05:00Z".parse().unwrap())
    }

    #[test]
    fn tables_look_like_kubectls() {
        let lines = table::render(HEADERS, &[row_of("ReplicaSet", false), row_of("DaemonSet", false)], true);
        assert_eq!(lines[0], "NAME   DESIRED   CURRENT   READY   AGE");
        assert_eq!(lines[1], "web    3         2         1       5m");
        assert_eq!(lines[2], "web    9         8         7       5m");
        let lines = table::render(STATEFUL_HEADERS, &[row_of("StatefulSet", false)], true);
        assert_eq!(lines, ["NAME   READY   AGE", "web    1/3     5m"]);
    }

    #[test]
    fn wide_adds_containers_images_and_selector() {
        let wide = row_of("ReplicaSet", true);
        assert_eq!(wide.len(), WIDE_HEADERS.len());
        assert_eq!(wide[5..], ["a,b", "i:1,j:2", "app=web,tier=x"]);
        assert_eq!(row_of("StatefulSet", true).len(), STATEFUL_WIDE_HEADERS.len());
    }
}
