//! Node that this agent registers (RG-2): the observed machine, and what its operator adds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_lifecycle::taint::Taint;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::settings::AgentSettings;
use crate::machine::AgentMachine;
use crate::pods::Runtime;

const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The machine as last observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// The labels that every node has; `--node-labels` win over them.
    pub labels: BTreeMap<String, String>,
    /// A NodeStatus, as Kubernetes JSON.
    pub status: Value,
}

/// The machine of a real agent.
pub struct NodeMachine {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    provider_id: Option<String>,
    registers: bool,
    report_every: Duration,
    observed: watch::Receiver<Observation>,
    runtime: Option<Arc<dyn Runtime>>,
}

// === impl NodeMachine ===

impl NodeMachine {
    pub fn new(
        settings: &AgentSettings,
        observed: watch::Receiver<Observation>,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Self {
        Self {
            name: settings.node.clone(),
            labels: settings.labels.clone(),
            taints: settings.taints.clone(),
            provider_id: settings.provider_id.clone(),
            registers: settings.register_node,
            report_every: settings.report_every,
            observed,
            runtime,
        }
    }

    fn node(&self) -> Value {
        let Observation { mut labels, status } = self.observed.borrow().clone();
        labels.extend(self.labels.clone());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": &self.name, "labels": labels, "annotations": { ATTACH_DETACH: "true" } },
            "spec": self.spec(),
            "status": status,
        })
    }

    fn spec(&self) -> Value {
        let mut spec = Map::new();
        if let Some(provider_id) = &self.provider_id {
            spec.insert("providerID".into(), provider_id.clone().into());
        }
        if !self.taints.is_empty() {
            spec.insert("taints".into(), self.taints.iter().map(taint).collect());
        }
        Value::Object(spec)
    }
}

impl AgentMachine for NodeMachine {
    fn node_json(&self) -> Bytes {
        self.node().to_string().into()
    }

    fn status_json(&self) -> Bytes {
        self.observed.borrow().status.to_string().into()
    }

    fn report_every(&self) -> Duration {
        self.report_every
    }

    fn registers(&self) -> bool {
        self.registers
    }

    fn runtime(&self) -> Option<Arc<dyn Runtime>> {
        self.runtime.clone()
    }
}

fn taint(taint: &Taint) -> Value {
    let (key, effect) = (taint.key.as_str(), taint.effect.as_str());
    match taint.value.is_empty() {
        true => json!({ "key": key, "effect": effect }),
        false => json!({ "key": key, "value": taint.value.as_str(), "effect": effect }),
    }
}
