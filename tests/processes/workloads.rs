//! Workloads on a real cluster: three processes, ninety simulated machines over TLS, 180 pods, a zone that dies, and
//! leaders killed in the middle of everything.
//!
//! The simulated machines report which pods really run on them, whatever the cluster believes: "no pod runs twice" is
//! checked against that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use muster_testing::dev::DevCluster;
use muster_testing::fleet;
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, text};
use muster_testing::runs;
use muster_testing::waiting::eventually_within;

const NODES: usize = 90;
const REPLICA_SET: usize = 120;
const STATEFUL_SET: usize = 60;

/// Grace, thirty nodes at one per second, the toleration, and as much again for five elections on two busy cores.
const MOVING_PATIENCE: Duration = Duration::from_secs(180);

/// One pod as the cluster shows it.
#[derive(Debug, Clone)]
struct ListedNode {
    name: String,
    uid: String,
    node: Option<String>,
    ready: bool,
    terminating: bool,
}

impl ListedNode {
    fn of(pod: &Value) -> Self {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Self {
            name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
            uid: pod["metadata"]["uid"].as_str().unwrap().to_owned(),
            node: pod["spec"]["nodeName"].as_str().map(str::to_owned),
            ready: conditions.iter().any(|each| each["type"] == "Ready" && each["status"] == "True"),
            terminating: !pod["metadata"]["deletionTimestamp"].is_null(),
        }
    }

    fn is_in(&self, zone: &str) -> bool {
        self.node.as_ref().is_some_and(|node| node.starts_with(&format!("node-{zone}-")))
    }

    fn serves(&self) -> bool {
        self.ready && !self.terminating
    }
}

fn start(arguments: &[&str]) -> DevCluster {
    let timings = ["--pod-eviction-timeout", "10s"];
    fleet::start_with(NODES, &[&fleet::SHORT[..], &timings, arguments].concat())
}

fn apply(cluster: &DevCluster, manifest: &Value) {
    let mut apply = Command::new(&*MUSTER);
    apply.arg("--dir").arg(cluster.dir.path()).args(["apply", "-f", "-"]);
    let mut child = apply.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(manifest.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn workload(kind: &str, name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{ "name": "app", "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } } }],
                },
            },
        },
    })
}

fn pods(cluster: &DevCluster, app: &str) -> Vec<ListedNode> {
    let list: Value =
        serde_json::from_str(&cluster.ok(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"])).unwrap();
    list["items"].as_array().unwrap().iter().map(ListedNode::of).collect()
}

fn serving(cluster: &DevCluster, app: &str) -> Vec<ListedNode> {
    pods(cluster, app).into_iter().filter(ListedNode::serves).collect()
}

/// The pods that really run, by machine: namespace/name and uid of every pod.
fn running(cluster: &DevCluster) -> Option<BTreeMap<String, BTreeSet<(String, String)>>> {
    let status: Value = serde_json::from_str(&cluster.ok(&["fleet", "status", "-o", "json"])).ok()?;
    let machine = |node: &Value| {
        let name = |pod: &Value| format!("{}/{}", pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
        let pods = node["pods"].as_array().unwrap().iter();
        let pods = pods.map(|pod| (name(pod), pod["uid"].as_str().unwrap().to_owned())).collect();
        (node["name"].as_str().unwrap().to_owned(), pods)
    };
    Some(status.as_array()?.iter().map(machine).collect())
}

/// Checks all the time whether some name runs on two machines at once.
struct Watchman {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<String>>>,
    looks: std::thread::JoinHandle<usize>,
}

impl Watchman {
    fn begin(cluster: &Arc<DevCluster>) -> Self {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (cluster, stopped, told) = (Arc::clone(cluster), Arc::clone(&stop), Arc::clone(&seen));
        let looks = std::thread::spawn(move || {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                if let Some(running) = running(&cluster) {
                    looks += 1;
                    told.lock().unwrap().extend(doubles(&running));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            looks
        });
        Self { stop, seen, looks }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.looks.join().unwrap();
        assert!(looks > 50, "the watchman looked only {looks} times");
        let seen = self.seen.lock().unwrap();
        assert!(seen.is_empty(), "names that ran twice: {seen:?}");
    }
}

fn doubles(running: &BTreeMap<String, BTreeSet<(String, String)>>) -> Vec<String> {
    let mut machines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (machine, pods) in running {
        pods.iter().for_each(|(name, _)| machines.entry(name).or_default().push(machine));
    }
    machines.into_iter().filter(|(_, on)| on.len() > 1).map(|(name, on)| format!("{name} on {on:?}")).collect()
}

/// How often each pod was evicted, by uid.
fn evictions(cluster: &DevCluster) -> BTreeMap<String, usize> {
    let about = "reason=TaintManagerEviction";
    let list = cluster.ok(&["get", "events", "-A", "--field-selector", about, "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut counted = BTreeMap::new();
    for event in list["items"].as_array().unwrap() {
        *counted.entry(event["involvedObject"]["uid"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counted
}

fn all_serve(cluster: &DevCluster, app: &str, count: usize) {
    eventually_within(MOVING_PATIENCE, &format!("all pods of {app} serve"), || {
        let pods = pods(cluster, app);
        (pods.len() == count && pods.iter().all(ListedNode::serves)).then_some(())
    });
}

#[test]
fn the_pods_of_a_lost_zone_are_replaced_elsewhere_while_leaders_are_killed() {
    let cluster = Arc::new(start(&[]));
    apply(&cluster, &workload("ReplicaSet", "web", REPLICA_SET));
    apply(&cluster, &workload("StatefulSet", "db", STATEFUL_SET));
    all_serve(&cluster, "web", REPLICA_SET);
    all_serve(&cluster, "db", STATEFUL_SET);
    let watchman = Watchman::begin(&cluster);
    let before: Vec<ListedNode> = pods(&cluster, "web").into_iter().chain(pods(&cluster, "db")).collect();
    let lost: BTreeSet<String> = before.iter().filter(|pod| pod.is_in("b")).map(|pod| pod.uid.clone()).collect();
    assert_eq!(lost.len(), (REPLICA_SET + STATEFUL_SET) / 3, "work is spread over the zones");

    // The leader is killed in the grace, while nodes are tainted, in the tolerations, while pods move, and when all
    // seems done.
    fleet::fleet(&cluster, &["kill", "--zone", "b"]);
    fleet::kill_the_leader(&cluster);
    eventually_within(MOVING_PATIENCE, "zone b is evacuated", || {
        (fleet::zone_state(&cluster, "dev/b") == "FullDisruption").then_some(())
    });
    fleet::kill_the_leader(&cluster);
    eventually_within(MOVING_PATIENCE, "the first pods are evicted", || {
        (!evictions(&cluster).is_empty()).then_some(())
    });
    fleet::kill_the_leader(&cluster);
    eventually_within(MOVING_PATIENCE, "half of the pods are evicted", || {
        (evictions(&cluster).len() >= lost.len() / 2).then_some(())
    });
    fleet::kill_the_leader(&cluster);
    eventually_within(MOVING_PATIENCE, "the ReplicaSet serves from the other zones", || {
        let serving = serving(&cluster, "web");
        (serving.len() == REPLICA_SET && serving.iter().all(|pod| !pod.is_in("b"))).then_some(())
    });
    eventually_within(MOVING_PATIENCE, "every lost pod is evicted", || {
        (evictions(&cluster).len() == lost.len()).then_some(())
    });
    let waiting: Vec<ListedNode> = pods(&cluster, "db").into_iter().filter(|pod| pod.terminating).collect();
    assert_eq!(
        waiting.len(),
        STATEFUL_SET / 3,
        "StatefulSet pods keep their names until an operator vouches for the machine"
    );
    assert!(waiting.iter().all(|pod| lost.contains(&pod.uid)));
    let explained = cluster.ok(&["explain", "pod", &waiting[0].name]);
    assert!(explained.contains("until its node is back"), "{explained}");

    come_back(&cluster);
    all_serve(&cluster, "db", STATEFUL_SET);
    all_serve(&cluster, "web", REPLICA_SET);
    watchman.end();
    let evictions = evictions(&cluster);
    assert_eq!(evictions.keys().cloned().collect::<BTreeSet<_>>(), lost, "exactly the lost pods were evicted");
    assert!(evictions.values().all(|count| *count == 1), "no pod was evicted twice: {evictions:?}");
    account(&cluster);
    let noted = runs::require_sound_in([cluster.dir.path().join("runs.jsonl").as_path()]);
    assert!(noted >= REPLICA_SET + STATEFUL_SET + lost.len(), "{noted} runs were noted");
}

/// Half of the zone's Nodes are deleted by an operator, the machines of the other half return.
fn come_back(cluster: &DevCluster) {
    let zone: Vec<String> = fleet::first_of_zone(cluster, "b", NODES / 3).into_iter().collect();
    let (deleted, returning) = zone.split_at(zone.len() / 2);
    let mut delete = vec!["delete", "node"];
    delete.extend(deleted.iter().map(String::as_str));
    cluster.ok(&delete);
    fleet::kill_the_leader(cluster);
    for node in returning {
        fleet::fleet(cluster, &["resume", "--node", node]);
    }
    eventually_within(MOVING_PATIENCE, "no pod is left of the dead zone", || {
        let pods: Vec<ListedNode> = pods(cluster, "web").into_iter().chain(pods(cluster, "db")).collect();
        pods.iter().all(|pod| !pod.terminating).then_some(())
    });
    for node in deleted {
        fleet::fleet(cluster, &["resume", "--node", node]);
    }
    eventually_within(MOVING_PATIENCE, "every machine is a ready node again", || {
        let nodes = fleet::nodes(cluster);
        (nodes.len() == NODES && nodes.values().all(fleet::ListedNode::is_ready)).then_some(())
    });
}

/// The pods that run are exactly the pods in the state.
fn account(cluster: &DevCluster) {
    let names: BTreeSet<String> = pods(cluster, "db").into_iter().map(|pod| pod.name).collect();
    assert_eq!(names, (0..STATEFUL_SET).map(|ordinal| format!("db-{ordinal}")).collect());
    eventually_within(MOVING_PATIENCE, "state and machines agree", || {
        let pods = pods(cluster, "web").into_iter().chain(pods(cluster, "db"));
        let booked: BTreeSet<(String, String)> = pods.map(|pod| (pod.node.unwrap_or_default(), pod.uid)).collect();
        let running = running(cluster)?.into_iter();
        let real = running.flat_map(|(node, pods)| pods.into_iter().map(move |(_, uid)| (node.clone(), uid))).collect();
        (booked == real).then_some(())
    });
}

#[test]
fn no_pod_is_placed_on_or_removed_from_a_cordoned_node() {
    let cluster = start(&["--allocate-node-cidrs", "--cluster-cidr", "10.0.0.0/16,fd00::/56"]);
    apply(&cluster, &workload("ReplicaSet", "web", NODES));
    all_serve(&cluster, "web", NODES);
    let cordoned = "node-a-01";
    cluster.ok(&["cordon", cordoned]);
    let there = |cluster: &DevCluster| -> BTreeSet<String> {
        let pods = pods(cluster, "web").into_iter();
        pods.filter(|pod| pod.node.as_deref() == Some(cordoned)).map(|pod| pod.uid).collect()
    };
    let before = there(&cluster);
    assert!(!before.is_empty(), "it has something to keep");
    apply(&cluster, &workload("ReplicaSet", "web", 3 * NODES));
    all_serve(&cluster, "web", 3 * NODES);
    assert_eq!(there(&cluster), before);
    cluster.ok(&["uncordon", cordoned]);
    apply(&cluster, &workload("ReplicaSet", "web", 4 * NODES));
    eventually_within(MOVING_PATIENCE, "it takes pods again", || (there(&cluster).len() > before.len()).then_some(()));
    assert_addresses_are_apart(&cluster);
}

fn assert_addresses_are_apart(cluster: &DevCluster) {
    let list: Value = serde_json::from_str(&cluster.ok(&["get", "nodes", "-o", "json"])).unwrap();
    let mut seen = BTreeSet::new();
    for node in list["items"].as_array().unwrap() {
        let cidrs = node["spec"]["podCIDRs"].as_array().unwrap();
        assert_eq!(cidrs.len(), 2, "{node}");
        assert!(cidrs.iter().all(|cidr| seen.insert(cidr.to_string())), "{cidrs:?} is there twice");
    }
}
