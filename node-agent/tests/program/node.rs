//! RG-2: the Node that an agent registers.

use std::collections::BTreeMap;

use muster_node_agent::agent::{NodeMachine, Observation};
use muster_node_agent::machine::AgentMachine;
use muster_proto::manifest::node_from_json;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::flags::settings;

fn observation() -> Observation {
    let labels = [("kubernetes.io/hostname", "host-1"), ("kubernetes.io/os", "linux")];
    Observation {
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        status: json!({ "capacity": { "cpu": "4" }, "conditions": [{ "type": "Ready", "status": "True" }] }),
    }
}

#[test]
fn rg_2_the_node_is_made_of_facts_and_flags() {
    let flags = [
        "--server=a:1",
        "--node-labels=team=x,kubernetes.io/hostname=other",
        "--register-with-taints=dedicated=db:NoSchedule,slow:NoExecute",
        "--provider-id=cloud://1",
    ];
    let (sender, observed) = watch::channel(observation());
    let machine = NodeMachine::new(&settings(&flags).unwrap(), observed, None);
    let node: Value = serde_json::from_slice(&machine.node_json()).unwrap();
    assert_eq!(node["metadata"]["name"], "host-1");
    let labels = BTreeMap::from([("kubernetes.io/hostname", "other"), ("kubernetes.io/os", "linux"), ("team", "x")]);
    assert_eq!(node["metadata"]["labels"], json!(labels), "flags go before what was observed");
    assert_eq!(
        node["metadata"]["annotations"],
        json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" })
    );
    let dedicated = json!({ "key": "dedicated", "value": "db", "effect": "NoSchedule" });
    let taints = json!([dedicated, { "key": "slow", "effect": "NoExecute" }]);
    assert_eq!(node["spec"], json!({ "providerID": "cloud://1", "taints": taints }));
    assert_eq!(node["status"], observation().status);
    let draft = node_from_json(&machine.node_json()).unwrap().draft;
    assert!(draft.check().is_ok(), "the fleet can read it");
    sender.send_modify(|observation| observation.status["capacity"]["cpu"] = "8".into());
    let status: Value = serde_json::from_slice(&machine.status_json()).unwrap();
    assert_eq!(status["capacity"]["cpu"], "8", "as it was last seen");
}

#[test]
fn rg_2_without_flags_the_spec_is_empty() {
    let (_sender, observed) = watch::channel(observation());
    let machine = NodeMachine::new(&settings(&["--server=a:1", "--register-node=false"]).unwrap(), observed, None);
    let node: Value = serde_json::from_slice(&machine.node_json()).unwrap();
    assert_eq!(node["spec"], json!({}));
    assert!(!machine.registers() && machine.report_every().as_secs() == 300);
}
