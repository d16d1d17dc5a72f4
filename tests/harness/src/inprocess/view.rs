//! The operator's view of a test cluster: nodes, zones, and the events of each node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_client::{Client, Query};
use muster_lifecycle::explain::NodeExplanation;
use muster_lifecycle::time::Period;
use serde_json::Value;

pub const NOT_READY: &str = "NodeNotReady";
pub const TAINTED: &str = "NodeTaintedForEviction";
pub const QUARANTINED: &str = "NodeQuarantined";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub ready: String,
    /// As `key:Effect`.
    pub taints: BTreeSet<String>,
    pub uid: String,
}

/// An action of the controller on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedVerdict {
    pub node: String,
    pub reason: String,
    pub message: String,
    /// By the wall clock of the leader.
    pub at: Timestamp,
}

// === impl NodeView ===

impl NodeView {
    pub fn is_ready(&self) -> bool {
        self.ready == "True" && self.taints.is_empty()
    }

    pub fn is_unknown(&self) -> bool {
        self.ready == "Unknown"
    }

    pub fn is_evicted(&self) -> bool {
        self.taints.iter().any(|taint| taint.ends_with(":NoExecute"))
    }
}

// === impl ObservedVerdict ===

impl ObservedVerdict {
    /// How long before the verdict the node was last heard, in milliseconds.
    pub fn silence_ms(&self) -> u64 {
        let age = self.message.split("last heard ").nth(1).and_then(|rest| rest.split(' ').next());
        age.unwrap_or_else(|| panic!("no age in {:?}", self.message)).parse::<Period>().unwrap().0
    }
}

pub async fn nodes(client: &Client) -> Result<BTreeMap<String, NodeView>, String> {
    Ok(list(client, "nodes").await?.iter().map(seen).collect())
}

/// All actions of the controller on nodes so far.
pub async fn verdicts(client: &Client) -> Result<Vec<ObservedVerdict>, String> {
    let by_controller = |event: &&Value| {
        let reason = event["reason"].as_str().unwrap();
        event["source"]["component"] == "node-controller" && [NOT_READY, TAINTED, QUARANTINED].contains(&reason)
    };
    Ok(list(client, "events").await?.iter().filter(by_controller).map(verdict).collect())
}

pub async fn zone_status(client: &Client, name: &str) -> Result<Value, String> {
    let zones = list(client, "zones").await?;
    let zone = zones.iter().find(|zone| zone["metadata"]["name"] == name);
    zone.map(|zone| zone["status"].clone()).ok_or_else(|| format!("no zone {name} among {zones:?}"))
}

pub async fn explain(client: &Client, node: &str) -> Result<NodeExplanation, String> {
    let told = client.explain("node", node).await.map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&told.value).unwrap())
}

/// When the node's NoExecute taint was added, in cluster time.
pub async fn evicted_at(client: &Client, node: &str) -> Result<u64, String> {
    let explanation = explain(client, node).await?;
    let fact = explanation.facts.iter().find(|fact| fact.label == "no-execute taint");
    let at = fact.and_then(|fact| fact.at).map(|at| at.cluster_ms);
    at.ok_or_else(|| format!("no NoExecute taint on {node}: {explanation:?}"))
}

pub async fn list(client: &Client, kind: &str) -> Result<Vec<Value>, String> {
    let read = client.list(&Query::of(kind)).await.map_err(|error| error.to_string())?;
    Ok(read.value.iter().map(|object| serde_json::from_slice(object).unwrap()).collect())
}

fn seen(node: &Value) -> (String, NodeView) {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let taint = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
    let seen = NodeView {
        ready: ready.map_or("none", |ready| ready["status"].as_str().unwrap()).to_owned(),
        taints: taints.iter().map(taint).collect(),
        uid: text(&node["metadata"]["uid"]),
    };
    (text(&node["metadata"]["name"]), seen)
}

fn verdict(event: &Value) -> ObservedVerdict {
    ObservedVerdict {
        node: text(&event["involvedObject"]["name"]),
        reason: text(&event["reason"]),
        message: text(&event["message"]),
        at: event["lastTimestamp"].as_str().unwrap().parse().unwrap(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
