//! The command line against a real cluster: its output, its refusals and their messages.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use muster_testing::dev::DevCluster;
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, text};
use muster_testing::waiting::eventually;
use serde_json::{Value, json as object};

/// The example of the Kubernetes documentation.
const DOCS_EXAMPLE: &str =
    r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"10.240.79.157","labels":{"name":"my-first-k8s-node"}}}"#;

fn apply(cluster: &DevCluster, manifest: &str) -> std::process::Output {
    apply_with(cluster, manifest, &[])
}

fn apply_with(cluster: &DevCluster, manifest: &str, arguments: &[&str]) -> std::process::Output {
    let mut child = Command::new(&*MUSTER)
        .arg("--dir")
        .arg(cluster.dir.path())
        .args(["apply", "-f", "-"])
        .args(arguments)
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
fn verbs_for_nodes_behave_as_in_kubectl() {
    let cluster = DevCluster::start();
    nodes_are_applied_read_and_changed(&cluster);
    events_and_descriptions(&cluster);
    bad_input_names_the_field_and_changes_nothing(&cluster);
    preconditions_show_both_versions(&cluster);
    watches_print_changes(&cluster);
    status_has_the_promised_shape(&cluster);
    tokens_are_made_listed_and_revoked(&cluster);
}

fn tokens_are_made_listed_and_revoked(cluster: &DevCluster) {
    let told = cluster.ok(&["token", "create", "--node", "rack-1", "--ttl", "5m"]);
    let token = told.lines().next_back().unwrap();
    let parsed: muster_proto::token::Token = token.parse().expect("the token stands alone on the last line");
    assert!(told.contains("muster-agent --join @FILE --server") && told.contains("within 5m"), "{told}");
    let listed = cluster.ok(&["token", "list"]);
    let row = listed.lines().find(|line| line.starts_with(&parsed.id)).expect("it is listed");
    assert!(row.contains("rack-1") && row.contains("Open"), "{listed}");
    assert!(!listed.contains(&parsed.secret), "{listed}");
    assert_eq!(cluster.ok(&["token", "revoke", &parsed.id]), format!("token/{} revoked\n", parsed.id));
    assert!(cluster.ok(&["token", "list"]).contains("Revoked"));
    assert_eq!(cluster.ok(&["node", "revoke", "rack-1"]), "node/rack-1 revoked\n");
    assert_eq!(cluster.ok(&["node", "revoke", "rack-1"]), "node/rack-1 was revoked before\n");
    let wrong = cluster.muster(&["token", "create", "--ttl", "1s"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("between 1 minute and 30 days"), "{}", text(&wrong.stderr));
}

fn nodes_are_applied_read_and_changed(cluster: &DevCluster) {
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

fn events_and_descriptions(cluster: &DevCluster) {
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

fn bad_input_names_the_field_and_changes_nothing(cluster: &DevCluster) {
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
        (r#"{"apiVersion":"v1","kind":"Gadget","metadata":{"name":"n"}}"#, "kind: \"Gadget\" is not supported here"),
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

fn what_is_not_there_is_followed_by_where_to_look(cluster: &DevCluster) {
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
    assert!(cluster.fails(2, &["explain", "foo", "bar"]).contains("only nodes, zones and pods can be explained"));
    let setting = cluster.ok(&["get", "config", "node-monitor-period", "--no-headers"]);
    assert_eq!(setting.split_whitespace().next(), Some("node-monitor-period"));
    assert_eq!(setting.lines().count(), 1, "{setting}");
}

fn preconditions_show_both_versions(cluster: &DevCluster) {
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

fn watches_print_changes(cluster: &DevCluster) {
    let mut watch = Watching::start(cluster, &["get", "nodes", "--watch", "-o", "name"]);
    watch.wait_for("node/b");
    apply(cluster, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"watched"}}"#);
    watch.wait_for("node/watched");
}

/// A command that goes on printing until it is dropped.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(cluster: &DevCluster, arguments: &[&str]) -> Self {
        let mut command = Command::new(&*MUSTER);
        command.arg("--dir").arg(cluster.dir.path()).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn wait_for(&mut self, wanted: &str) {
        while self.lines.next().expect("the watch goes on").unwrap() != wanted {}
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn status_has_the_promised_shape(cluster: &DevCluster) {
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

/// Its node has no agent, so the pod stays as it is.
fn pod_on(node: &str, name: &str) -> Value {
    let container = object!({"name": "app", "image": "i:1", "resources": {"requests": {"cpu": "100m"}}});
    object!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "alone"}},
        "spec": {"nodeName": node, "priority": 7, "containers": [container]},
    })
}

fn replicaset(name: &str, replicas: u32) -> Value {
    let labels = object!({ "app": name });
    object!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "i:1"}]}}},
    })
}

#[test]
fn verbs_for_pods_and_workloads_behave_as_in_kubectl() {
    let cluster = DevCluster::start();
    pods_are_applied_and_read(&cluster);
    bad_pods_are_refused_and_change_nothing(&cluster);
    pods_are_described_and_explained(&cluster);
    workloads_have_pods(&cluster);
    pods_are_watched(&cluster);
    pods_are_deleted_with_grace_and_by_force(&cluster);
}

fn pods_are_applied_and_read(cluster: &DevCluster) {
    let file = format!(
        "{}\n{}\n{}",
        object!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
        object!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}),
        pod_on("n1", "one")
    );
    let created = apply(cluster, &file);
    assert_eq!(
        text(&created.stdout),
        "node/n1 created\nnode/n2 created\npod/one created\n",
        "{}",
        text(&created.stderr)
    );
    assert_eq!(text(&apply(cluster, &pod_on("n1", "one").to_string()).stdout), "pod/one unchanged\n");
    let elsewhere = apply_with(cluster, &pod_on("n2", "two").to_string(), &["-n", "shop"]);
    assert_eq!(text(&elsewhere.stdout), "pod/two created\n", "{}", text(&elsewhere.stderr));
    let mut changed = pod_on("n1", "one");
    changed["metadata"]["labels"]["tier"] = "x".into();
    assert_eq!(text(&apply(cluster, &changed.to_string()).stdout), "pod/one configured\n");

    assert_eq!(cluster.ok(&["get", "pods", "-o", "name"]), "pod/one\n");
    assert_eq!(cluster.ok(&["get", "po", "-n", "shop", "-o", "name"]), "pod/two\n");
    assert_eq!(cluster.ok(&["get", "pods", "-A", "--field-selector", "spec.nodeName=n2", "-o", "name"]), "pod/two\n");
    assert_eq!(cluster.ok(&["get", "pods", "-A", "-l", "tier=x", "-o", "name"]), "pod/one\n");
    let all = cluster.ok(&["get", "pods", "-A"]);
    let header: Vec<&str> = all.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert!(all.lines().any(|line| line.starts_with("shop ") && line.contains("Pending")), "{all}");
    let wide = cluster.ok(&["get", "pod", "one", "-o", "wide", "--no-headers"]);
    let cells: Vec<&str> = wide.split_whitespace().collect();
    assert_eq!((&cells[..4], &cells[5..]), (&["one", "0/1", "Pending", "0"][..], &["n1", "<none>"][..]), "{wide}");
    let list = json(&cluster.ok(&["get", "pods", "-A", "-o", "json"]));
    assert_eq!((list["kind"].as_str(), list["items"].as_array().unwrap().len()), (Some("PodList"), 2));
    assert!(cluster.fails(4, &["get", "pod", "two"]).contains("`muster get pods -A`"));
    cluster.fails(2, &["get", "pod", "one", "-A"]);
}

fn bad_pods_are_refused_and_change_nothing(cluster: &DevCluster) {
    let before = json(&cluster.ok(&["status", "-o", "json"]))["revision"].clone();
    let with = |path: &str, value: Value| {
        let mut pod = pod_on("n1", "bad");
        *pod.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        pod
    };
    let mut tolerant = pod_on("n1", "bad");
    tolerant["spec"]["tolerations"] = object!([{"effect": "NoExecute"}]);
    let mut hasty = pod_on("n1", "bad");
    hasty["spec"]["terminationGracePeriodSeconds"] = (-5).into();
    let mut other_image = pod_on("n1", "one");
    other_image["spec"]["containers"][0]["image"] = "i:2".into();
    let mut stray = replicaset("web", 1);
    stray["spec"]["template"]["metadata"]["labels"]["app"] = "db".into();
    let cases = [
        (tolerant, "spec.tolerations[0].operator: must be Exists when the key is empty"),
        (hasty, "spec.terminationGracePeriodSeconds: -5 is negative"),
        (with("/spec/containers/0/resources/requests/cpu", "lots".into()), "resources.requests[\"cpu\"]: \"lots\""),
        (with("/spec/nodeName", "nowhere".into()), "spec.nodeName: node \"nowhere\" not found"),
        (with("/spec/containers", object!([])), "spec.containers: is required"),
        (with("/metadata/name", "Not_A_Name".into()), "metadata.name: \"Not_A_Name\""),
        (other_image, "cannot be changed: of a pod that exists only labels, annotations and tolerations can change"),
        (pod_on("n2", "one"), "spec.nodeName: cannot be changed"),
        (stray, "spec.template.metadata.labels: must have \"app=web\""),
        (replicaset("web", 4_000_000_000), "spec.replicas"),
    ];
    for (manifest, wanted) in cases {
        let output = apply(cluster, &manifest.to_string());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{manifest}: {stderr}");
        assert!(stderr.contains(wanted), "{wanted:?} is not in: {stderr}");
        assert!(output.stdout.is_empty());
    }
    // A valid document in front of an invalid one is not sent either.
    let file = format!("{}\n{}", pod_on("n1", "good"), with("/spec/containers", object!([])));
    assert!(text(&apply(cluster, &file).stderr).contains("document 2: spec.containers"));
    let mut shop = pod_on("n1", "good");
    shop["metadata"]["namespace"] = "shop".into();
    let contradiction = text(&apply_with(cluster, &shop.to_string(), &["-n", "web"]).stderr);
    assert!(contradiction.contains("\"shop\" contradicts -n web"), "{contradiction}");
    for (words, part) in [
        (&["delete", "pod", "one", "--grace-period", "-1"][..], "--grace-period: -1 is negative"),
        (&["delete", "pod", "one", "--force", "--grace-period", "9"], "contradicts"),
        (&["delete", "node", "n1", "--force"], "are for pods"),
        (&["delete", "zone", "a"], "this works on nodes, pods"),
        (&["delete", "pods"], "name at least one pod"),
    ] {
        let message = cluster.fails(2, words);
        assert!(message.contains(part), "{words:?}: {message}");
    }
    assert!(cluster.fails(4, &["delete", "pod", "two"]).contains("`muster get pods -A`"));
    let after = json(&cluster.ok(&["status", "-o", "json"]))["revision"].clone();
    assert_eq!(before, after, "bad input changed something");
}

fn pods_are_described_and_explained(cluster: &DevCluster) {
    let page = cluster.ok(&["describe", "pod", "one"]);
    for part in [
        "Name:               one\nNamespace:          default\n",
        "Priority:           7\nNode:               n1\n",
        "Labels:             app=alone\n",
        "Status:             Pending\n",
        "Controlled By:      <none>\n",
        "    Image:     i:1\n    Requests:  cpu 100m\n",
        "Conditions:\n",
        "Tolerations:        node.kubernetes.io/not-ready:NoExecute op=Exists for 300s\n",
        "Node-Selectors:     <none>\n",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    let explained = cluster.ok(&["explain", "pod", "two", "-n", "shop"]);
    assert!(explained.starts_with("pod shop/two: pending on node n2 since "), "{explained}");
    let explained = json(&cluster.ok(&["explain", "pod/one", "-o", "json"]));
    assert_eq!((explained["name"].as_str(), explained["node"].as_str()), (Some("one"), Some("n1")));
    assert!(cluster.fails(4, &["explain", "pod", "two"]).contains("`muster get pods -A`"));
    cluster.fails(4, &["describe", "pod", "two"]);
}

fn workloads_have_pods(cluster: &DevCluster) {
    let sets = [
        replicaset("web", 2),
        object!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"},
            "spec": replicaset("log", 1)["spec"],
        }),
    ];
    let created = apply(cluster, &sets.map(|set| set.to_string()).join("\n"));
    assert_eq!(text(&created.stdout), "replicaset/web created\ndaemonset/log created\n", "{}", text(&created.stderr));
    eventually("the ReplicaSet has its pods", || {
        let row = cluster.ok(&["get", "rs", "web", "--no-headers"]);
        (row.split_whitespace().take(4).collect::<Vec<_>>() == ["web", "2", "2", "0"]).then_some(())
    });
    let scaled = apply(cluster, &replicaset("web", 3).to_string());
    assert_eq!(text(&scaled.stdout), "replicaset/web configured\n", "{}", text(&scaled.stderr));
    eventually("it makes one more", || {
        let pods = cluster.ok(&["get", "pods", "-l", "app=web", "-o", "wide", "--no-headers"]);
        (pods.lines().filter(|pod| pod.contains("ReplicaSet/web")).count() == 3).then_some(())
    });
    assert!(cluster.ok(&["get", "ds"]).starts_with("NAME   DESIRED   CURRENT   READY   AGE\nlog "));
    let page = cluster.ok(&["describe", "rs", "web"]);
    assert!(page.contains("Selector:           app=web\n") && page.contains("Pods:               3 desired"), "{page}");
    let list = json(&cluster.ok(&["get", "rs", "-o", "json"]));
    assert_eq!((list["apiVersion"].as_str(), list["kind"].as_str()), (Some("apps/v1"), Some("ReplicaSetList")));
    assert_eq!(cluster.ok(&["delete", "ds", "log"]), "daemonset/log deleted\n");
    assert_eq!(cluster.ok(&["delete", "rs/web"]), "replicaset/web deleted\n");
    eventually("its pods go with it", || cluster.ok(&["get", "pods", "-l", "app=web"]).is_empty().then_some(()));
}

fn pods_are_watched(cluster: &DevCluster) {
    let words = ["get", "pods", "-A", "--watch", "--output-watch-events", "-o", "name"];
    let mut watch = Watching::start(cluster, &words);
    watch.wait_for("ADDED pod/two");
    apply(cluster, &pod_on("n1", "watched").to_string());
    watch.wait_for("ADDED pod/watched");
    cluster.ok(&["delete", "pod", "watched", "--force"]);
    watch.wait_for("DELETED pod/watched");
}

fn pods_are_deleted_with_grace_and_by_force(cluster: &DevCluster) {
    assert_eq!(cluster.ok(&["delete", "pod", "one", "--grace-period", "20"]), "pod/one deleted\n");
    let shown = cluster.ok(&["get", "pod", "one"]);
    assert!(shown.contains("Terminating"), "{shown}");
    let grace =
        || json(&cluster.ok(&["get", "pod", "one", "-o", "json"]))["metadata"]["deletionGracePeriodSeconds"].clone();
    assert_eq!(grace(), 20);
    assert_eq!(cluster.ok(&["delete", "pod", "one"]), "pod/one already terminating\n", "a grace only gets shorter");
    assert_eq!(cluster.ok(&["delete", "pod", "one", "--grace-period", "0"]), "pod/one deleted\n");
    assert_eq!(grace(), 1, "without --force the node has to confirm");
    let forced = cluster.muster(&["delete", "pod", "one", "--force"]);
    assert_eq!(text(&forced.stdout), "pod/one force deleted\n");
    assert!(text(&forced.stderr).contains("may still run"), "{}", text(&forced.stderr));
    cluster.fails(4, &["get", "pod", "one"]);
    assert_eq!(cluster.ok(&["delete", "pod", "two", "-n", "shop", "--force"]), "pod/two force deleted\n");
    assert_eq!(cluster.ok(&["get", "pods", "-A"]), "");
    let events = cluster.ok(&["get", "events", "-n", "shop"]);
    assert!(events.contains("pod/two") && !events.contains("pod/one"), "{events}");
}

#[test]
fn without_a_quorum_writes_and_reads_are_refused_and_stale_reads_say_so() {
    let cluster = DevCluster::start();
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
fn without_a_cluster_the_error_names_dev_and_dir() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(&*MUSTER)
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
        let output = Command::new(&*MUSTER).args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("muster"), "{shell}");
    }
}
