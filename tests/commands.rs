//! The command line against a real cluster: what it prints, what it refuses, and how it says so.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Cluster, MUSTER, eventually, text};

/// The example of the Kubernetes documentation.
const DOCS_EXAMPLE: &str =
    r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"10.240.79.157","labels":{"name":"my-first-k8s-node"}}}"#;

fn apply(cluster: &Cluster, manifest: &str) -> std::process::Output {
    let mut child = Command::new(MUSTER)
        .arg("--dir")
        .arg(cluster.dir.path())
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn json(output: &str) -> Value {
    serde_json::from_str(output).expect("JSON")
}

#[test]
fn verbs_in_kubectls_words() {
    let cluster = Cluster::start();
    nodes_are_applied_read_and_changed(&cluster);
    events_and_descriptions(&cluster);
    bad_input_names_the_field_and_changes_nothing(&cluster);
    preconditions_show_both_versions(&cluster);
    watches_print_changes(&cluster);
    status_has_the_promised_shape(&cluster);
}

fn nodes_are_applied_read_and_changed(cluster: &Cluster) {
    let created = apply(cluster, DOCS_EXAMPLE);
    assert_eq!(text(&created.stdout), "node/10.240.79.157 created\n", "{}", text(&created.stderr));
    let again = apply(cluster, DOCS_EXAMPLE);
    assert_eq!(text(&again.stdout), "node/10.240.79.157 unchanged\n");
    let yaml = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: Node\nmetadata:\n  name: b\n  labels: {zone: z1}\n";
    let two = apply(cluster, yaml);
    assert_eq!(text(&two.stdout), "node/a created\nnode/b created\n", "{}", text(&two.stderr));

    let list = json(&cluster.ok(&["get", "nodes", "-o", "json"]));
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("NodeList"), Some("v1")));
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert_eq!(cluster.ok(&["get", "nodes", "-l", "zone=z1", "-o", "name"]), "node/b\n");

    cluster.ok(&["label", "node", "a", "tier=gpu"]);
    cluster.ok(&["annotate", "node", "a", "note=hello"]);
    cluster.ok(&["taint", "node", "a", "gpu=true:NoSchedule"]);
    cluster.ok(&["cordon", "a"]);
    let node = json(&cluster.ok(&["get", "node", "a", "-o", "json"]));
    assert_eq!(node["metadata"]["labels"]["tier"], "gpu");
    assert_eq!(node["metadata"]["annotations"]["note"], "hello");
    assert_eq!(node["spec"]["unschedulable"], true);
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint["key"] == "gpu" && taint["effect"] == "NoSchedule"), "{taints:?}");
    let table = cluster.ok(&["get", "nodes"]);
    let row = table.lines().find(|line| line.starts_with("a ")).unwrap();
    assert!(row.contains("SchedulingDisabled"), "{table}");
    cluster.ok(&["uncordon", "a"]);
    cluster.ok(&["taint", "node", "a", "gpu-"]);
    cluster.ok(&["label", "node", "a", "tier-"]);
    cluster.ok(&["delete", "node", "10.240.79.157"]);
    cluster.fails(4, &["get", "node", "10.240.79.157"]);
    for format in ["wide", "yaml", "name", "table"] {
        assert!(cluster.ok(&["get", "nodes", "-o", format]).contains('a'), "-o {format}");
    }
}

fn events_and_descriptions(cluster: &Cluster) {
    let events = cluster.ok(&["get", "events"]);
    for reason in ["RegisteredNode", "NodeNotSchedulable", "NodeSchedulable", "RemovingNode"] {
        assert!(events.contains(reason), "{reason} is missing:\n{events}");
    }
    let description = cluster.ok(&["describe", "node", "a"]);
    for part in ["Name:", "Labels:", "Annotations:", "Taints:", "Unschedulable:", "Events:"] {
        assert!(description.contains(part), "{part} is missing:\n{description}");
    }
    let replicas = cluster.ok(&["get", "replicas"]);
    assert_eq!(replicas.lines().count(), 4, "{replicas}");
}

fn bad_input_names_the_field_and_changes_nothing(cluster: &Cluster) {
    let before = json(&cluster.ok(&["status", "-o", "json"]))["revision"].clone();
    let cases = [
        (
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"Node_1"}}"#,
            "metadata.name: \"Node_1\" is not a DNS-1123 subdomain",
        ),
        (
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoRun"}]}}"#,
            "spec.taints[0].effect",
        ),
        (
            r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"capacity":{"cpu":"-1"}}}"#,
            "status.capacity",
        ),
        (r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"a b":"c"}}}"#, "metadata.labels"),
        (r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"}}"#, "kind"),
        ("{nonsense", "-"),
    ];
    for (manifest, field) in cases {
        let output = apply(cluster, manifest);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{manifest} was accepted");
        assert!(stderr.contains(field), "{manifest}: {field} is not named in: {stderr}");
        assert!(output.stdout.is_empty());
    }
    cluster.fails(4, &["cordon", "no-such-node"]);
    cluster.fails(4, &["delete", "node", "no-such-node"]);
    cluster.fails(2, &["get", "gadgets"]);
    what_is_not_there_is_followed_by_where_to_look(cluster);
    let after = json(&cluster.ok(&["status", "-o", "json"]))["revision"].clone();
    assert_eq!(before, after, "bad input changed something");
}

fn what_is_not_there_is_followed_by_where_to_look(cluster: &Cluster) {
    for (words, next) in [
        (["get", "zone", "nope"], "`muster get zones`"),
        (["explain", "zone", "nope"], "`muster get zones`"),
        (["explain", "node", "nope"], "`muster get nodes`"),
        (["get", "config", "nope"], "`muster get config`"),
        (["get", "aggregator", "nope"], "`muster get aggregators`"),
        (["get", "replica", "9"], "`muster get replicas`"),
    ] {
        let message = cluster.fails(4, &words);
        assert!(message.contains(next), "{words:?}: {message}");
    }
    assert!(cluster.fails(2, &["explain", "foo", "bar"]).contains("only nodes and zones can be explained"));
    let setting = cluster.ok(&["get", "config", "node-monitor-period", "--no-headers"]);
    assert_eq!(setting.split_whitespace().next(), Some("node-monitor-period"));
    assert_eq!(setting.lines().count(), 1, "{setting}");
}

fn preconditions_show_both_versions(cluster: &Cluster) {
    let node = json(&cluster.ok(&["get", "node", "b", "-o", "json"]));
    let version = node["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.ok(&["label", "node", "b", "x=1"]);
    let now = json(&cluster.ok(&["get", "node", "b", "-o", "json"]))["metadata"]["resourceVersion"].clone();
    let conflict = cluster.fails(5, &["label", "node", "b", "x=2", "--overwrite", "--resource-version", &version]);
    assert!(conflict.contains(&version) && conflict.contains(now.as_str().unwrap()), "{conflict}");
    let stale = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "resourceVersion": version, "labels": {"x": "3"}}});
    let output = apply(cluster, &stale.to_string());
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let overwritten = cluster.muster(&["label", "node", "b", "x=2"]);
    assert!(text(&overwritten.stderr).contains("--overwrite"), "{}", text(&overwritten.stderr));
}

fn watches_print_changes(cluster: &Cluster) {
    let mut watching = Command::new(MUSTER)
        .arg("--dir")
        .arg(cluster.dir.path())
        .args(["get", "nodes", "--watch", "-o", "name"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut wait_for = |wanted: &str| while lines.next().unwrap().unwrap() != wanted {};
    wait_for("node/b");
    apply(cluster, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"watched"}}"#);
    wait_for("node/watched");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

fn status_has_the_promised_shape(cluster: &Cluster) {
    let status = json(&cluster.ok(&["status", "-o", "json"]));
    for key in ["leader", "term", "applied"] {
        assert!(status[key].is_u64(), "{key}: {status}");
    }
    assert!(status["nodes"]["total"].is_u64() && status["nodes"]["ready"].is_u64());
    for replica in status["replicas"].as_array().unwrap() {
        assert!(replica["id"].is_u64() && replica["role"].is_string());
        assert!(replica["reachable"].is_boolean() && replica["applied"].is_u64());
    }
    assert!(cluster.ok(&["status"]).contains("leader"));
}

#[test]
fn without_a_quorum_writes_and_reads_are_refused_and_stale_reads_say_so() {
    let cluster = Cluster::start();
    assert!(apply(&cluster, DOCS_EXAMPLE).status.success());
    cluster.settle();
    cluster.kill(2);
    cluster.kill(3);
    let write = cluster.fails(3, &["cordon", "10.240.79.157", "--timeout", "4s"]);
    assert!(write.contains("no quorum: replicas 2, 3 unreachable"), "{write}");
    let read = cluster.fails(3, &["get", "nodes", "--timeout", "4s"]);
    assert!(read.contains("no quorum: replicas 2, 3 unreachable"), "{read}");
    let stale = cluster.muster(&["get", "nodes", "--stale", "-o", "name"]);
    assert_eq!(text(&stale.stdout), "node/10.240.79.157\n");
    assert!(text(&stale.stderr).contains("stale"), "{}", text(&stale.stderr));
    cluster.restart(2);
    eventually("writes work again", || cluster.muster(&["cordon", "10.240.79.157"]).status.success().then_some(()));
}

#[test]
fn no_cluster_no_guessing() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(MUSTER)
        .args(["get", "nodes"])
        .current_dir(empty.path())
        .env("HOME", empty.path())
        .env_remove("MUSTER_DIR")
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("muster dev") && stderr.contains("--dir"), "{stderr}");
}

#[test]
fn completions_are_printed_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(MUSTER).args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("muster"), "{shell}");
    }
}
