//! The simulated nodes of `muster dev` as tests see them: which are ready, which are tainted, what happened to each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::dev::DevCluster;
use crate::operator::Operator;
use crate::waiting::{eventually, eventually_within};

/// Three zones with short timings: beats every 2 s, a reattach window of 4 s.
pub const SHORT: [&str; 16] = [
    "--zones",
    "3",
    "--policy",
    "upstream",
    "--node-monitor-period",
    "1s",
    "--node-monitor-grace-period",
    "8s",
    "--node-startup-grace-period",
    "20s",
    "--node-eviction-rate",
    "1",
    "--secondary-node-eviction-rate",
    "0.1",
    "--demo-pods",
    "0",
];

pub const GRACE: Duration = Duration::from_secs(8);
/// Nodes per second, as in [`SHORT`].
pub const RATE: u64 = 1;

/// Far longer than a fleet takes to come up on two busy cores.
const FLEET_PATIENCE: Duration = Duration::from_secs(120);

pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// One node as the cluster shows it.
#[derive(Debug, Clone)]
pub struct ListedNode {
    pub ready: String,
    pub zone: String,
    pub taints: BTreeSet<String>,
}

impl ListedNode {
    pub fn is_ready(&self) -> bool {
        self.ready == "True"
    }

    pub fn is_evicted(&self) -> bool {
        [UNREACHABLE, NOT_READY].iter().any(|key| self.taints.contains(&format!("{key}:NoExecute")))
    }
}

/// An action on a node.
#[derive(Debug, Clone)]
pub struct NodeEvent {
    pub node: String,
    pub reason: String,
    pub message: String,
    /// Whole seconds since the epoch.
    pub at: i64,
}

/// A fleet of so many nodes under short timings.
pub fn start(count: usize) -> DevCluster {
    start_with(count, &SHORT)
}

/// The same with arguments of its own.
pub fn start_with(wanted: usize, arguments: &[&str]) -> DevCluster {
    let count = wanted.to_string();
    let cluster = DevCluster::start_exactly(&[&["--nodes", count.as_str()], arguments].concat());
    eventually_within(FLEET_PATIENCE, "all nodes are ready", || {
        let nodes = nodes(&cluster);
        (nodes.len() == wanted && nodes.values().all(ListedNode::is_ready)).then_some(())
    });
    cluster
}

pub fn nodes(cluster: &DevCluster) -> BTreeMap<String, ListedNode> {
    let list: Value = serde_json::from_str(&cluster.ok(&["get", "nodes", "-o", "json"])).unwrap();
    list["items"].as_array().unwrap().iter().map(seen).collect()
}

fn seen(node: &Value) -> (String, ListedNode) {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let taint = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
    let seen = ListedNode {
        ready: ready.map_or("none", |ready| ready["status"].as_str().unwrap()).to_owned(),
        zone: node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str().unwrap_or_default().to_owned(),
        taints: taints.iter().map(taint).collect(),
    };
    (node["metadata"]["name"].as_str().unwrap().to_owned(), seen)
}

/// The controller's actions on nodes: it marked them, or tainted them for eviction.
pub fn verdicts(cluster: &DevCluster) -> Vec<NodeEvent> {
    let list: Value = serde_json::from_str(&cluster.ok(&["get", "events", "-o", "json"])).unwrap();
    let by_controller = |event: &&Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        event["source"]["component"] == "node-controller"
            && event["involvedObject"]["kind"] == "Node"
            && ["NodeNotReady", "NodeTaintedForEviction", "NodeQuarantined"].contains(&reason)
    };
    list["items"].as_array().unwrap().iter().filter(by_controller).map(node_event).collect()
}

fn node_event(event: &Value) -> NodeEvent {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let at: jiff::Timestamp = event["lastTimestamp"].as_str().unwrap().parse().unwrap();
    NodeEvent {
        node: text(&event["involvedObject"]["name"]),
        reason: text(&event["reason"]),
        message: text(&event["message"]),
        at: at.as_second(),
    }
}

/// No node but these was ever marked or evicted.
pub fn assert_only_touched(cluster: &DevCluster, guilty: &BTreeSet<String>) {
    let innocent: Vec<NodeEvent> =
        verdicts(cluster).into_iter().filter(|event| !guilty.contains(&event.node)).collect();
    assert!(innocent.is_empty(), "nodes that were alive were touched: {innocent:#?}");
}

/// I-04: no window has more than burst + rate x length. Event times are whole seconds, so a window may hide one more.
pub fn assert_rate_held(cluster: &DevCluster, zone: &str) {
    let prefix = format!("node-{zone}-");
    let tainted = |event: &NodeEvent| event.reason == "NodeTaintedForEviction" && event.node.starts_with(&prefix);
    let mut times: Vec<i64> = verdicts(cluster).iter().filter(|event| tainted(event)).map(|h| h.at).collect();
    times.sort_unstable();
    for (first, start) in times.iter().enumerate() {
        for (last, end) in times.iter().enumerate().skip(first) {
            let (count, length) = (last - first + 1, u64::try_from(end - start).unwrap());
            let allowed = 1 + RATE * (length + 1);
            assert!(count as u64 <= allowed, "{count} evictions in zone {zone} within {length} s: {times:?}");
        }
    }
}

pub fn zone(cluster: &DevCluster, name: &str) -> Value {
    let list: Value = serde_json::from_str(&cluster.ok(&["get", "zones", "-o", "json"])).unwrap();
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .find(|zone| zone["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no zone {name}: {list}"))
        .clone()
}

pub fn zone_state(cluster: &DevCluster, name: &str) -> String {
    zone(cluster, name)["status"]["state"].as_str().unwrap().to_owned()
}

/// Runs `muster fleet` and returns the names it affected, worked out from the nodes there are.
pub fn fleet(cluster: &DevCluster, arguments: &[&str]) {
    cluster.ok(&[&["fleet"], arguments].concat());
}

/// Some simulated node that this replica hears.
pub fn attached_to(cluster: &DevCluster, replica: u64) -> String {
    eventually("a node is attached to the replica", || {
        let status: Value = serde_json::from_str(&cluster.ok(&["fleet", "status", "-o", "json"])).unwrap();
        let nodes = status.as_array().unwrap();
        let node = nodes.iter().find(|node| node["attachedTo"] == replica)?;
        Some(node["name"].as_str().unwrap().to_owned())
    })
}

/// The first `count` nodes of a zone, by name: what `--percent` picks.
pub fn first_of_zone(cluster: &DevCluster, zone: &str, count: usize) -> BTreeSet<String> {
    let nodes = nodes(cluster);
    nodes.into_iter().filter(|(_, seen)| seen.zone == zone).map(|(name, _)| name).take(count).collect()
}

/// Kills the leader and waits for another; the dead one is restarted.
pub fn kill_the_leader(cluster: &DevCluster) {
    let leader = cluster.leader();
    cluster.kill(leader);
    eventually("another leader", || {
        let now = cluster.status()?["leader"].as_u64()?;
        (now != leader).then_some(())
    });
    cluster.restart(leader);
}

pub fn all_ready(cluster: &DevCluster) {
    eventually_within(FLEET_PATIENCE, "all nodes are ready and untainted again", || {
        nodes(cluster).values().all(|seen| seen.is_ready() && seen.taints.is_empty()).then_some(())
    });
}
