//! Every write that the operators' door offers, through every replica. The list comes from the commands' own enum, so
//! that a new one does not compile before it is tried here.

use std::collections::HashMap;

use muster_lifecycle::command::{OperatorOperation, OperatorOperationKind};
use muster_lifecycle::meta::Uid;
use muster_proto::operation::operation;
use muster_proto::v1::write_request::Operation as Write;
use muster_proto::v1::{
    AggregatorScope, Cordon, Delete, ManifestWrite, NodeRevocation, PairsEdit, PolicyChange, TaintEdit, TokenCreation,
    TokenRevocation, WriteRequest,
};
use muster_testing::inprocess::{InprocessCluster, REPLICAS};
use serde_json::{Value, json};

/// In an order in which each finds what the ones before have made.
const ORDER: [OperatorOperationKind; 20] = [
    OperatorOperationKind::CreateNode,
    OperatorOperationKind::ApplyNode,
    OperatorOperationKind::ReplaceNode,
    OperatorOperationKind::ReplaceNodeStatus,
    OperatorOperationKind::LabelNode,
    OperatorOperationKind::AnnotateNode,
    OperatorOperationKind::TaintNode,
    OperatorOperationKind::CordonNode,
    OperatorOperationKind::CreatePod,
    OperatorOperationKind::ApplyPod,
    OperatorOperationKind::DeletePod,
    OperatorOperationKind::CreateWorkload,
    OperatorOperationKind::ApplyWorkload,
    OperatorOperationKind::DeleteWorkload,
    OperatorOperationKind::SetPolicy,
    OperatorOperationKind::SetAggregator,
    OperatorOperationKind::CreateToken,
    OperatorOperationKind::RevokeToken,
    OperatorOperationKind::RevokeNode,
    OperatorOperationKind::DeleteNode,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_of_operators_is_applied_through_every_replica() {
    assert!(
        OperatorOperationKind::ALL.iter().all(|kind| ORDER.contains(kind)),
        "an operation has no place in the order"
    );
    let cluster = InprocessCluster::start().await;
    for leader in REPLICAS {
        cluster.hand_over(leader).await;
        for through in REPLICAS {
            let client = cluster.members.client_of(through);
            for kind in ORDER {
                let write = write(kind, &format!("{leader}{through}"));
                assert_eq!(kind_of(&write), kind, "the sample of {kind:?} asks for something else");
                let done = client.write(write).await;
                assert!(done.is_ok(), "{kind:?} through replica {through} while {leader} leads: {}", done.unwrap_err());
            }
        }
    }
    cluster.stop().await;
}

fn kind_of(write: &Write) -> OperatorOperationKind {
    let request = WriteRequest { request: None, operation: Some(write.clone()), timeout_ms: 0 };
    let (_, operation): (_, OperatorOperation) = operation(request, Uid(1)).unwrap();
    OperatorOperationKind::from(&operation)
}

fn write(kind: OperatorOperationKind, suffix: &str) -> Write {
    let (node, pod) = (format!("node-{suffix}"), format!("pod-{suffix}"));
    let set = format!("set-{suffix}");
    let token = format!("tokenid0{suffix}");
    match kind {
        OperatorOperationKind::CreateNode => Write::Create(manifest(&node_json(&node))),
        OperatorOperationKind::ApplyNode => Write::Apply(manifest(&node_json(&node))),
        OperatorOperationKind::ReplaceNode => Write::Replace(manifest(&node_json(&node))),
        OperatorOperationKind::ReplaceNodeStatus => {
            let mut object = node_json(&node);
            object["status"] = json!({"capacity": {"cpu": "4"}});
            Write::ReplaceStatus(manifest(&object))
        }
        OperatorOperationKind::LabelNode => Write::Label(pairs(&node)),
        OperatorOperationKind::AnnotateNode => Write::Annotate(pairs(&node)),
        OperatorOperationKind::TaintNode => {
            Write::Taint(TaintEdit { name: node, add: vec!["rack=r1:NoSchedule".into()], ..TaintEdit::default() })
        }
        OperatorOperationKind::CordonNode => {
            Write::Cordon(Cordon { name: node, unschedulable: true, precondition: None })
        }
        OperatorOperationKind::DeleteNode => Write::Delete(delete("nodes", node)),
        OperatorOperationKind::RevokeNode => Write::RevokeNode(NodeRevocation { name: node }),
        OperatorOperationKind::CreatePod => Write::Create(manifest(&pod_json(&pod))),
        OperatorOperationKind::ApplyPod => Write::Apply(manifest(&pod_json(&pod))),
        OperatorOperationKind::DeletePod => Write::Delete(delete("pods", pod)),
        OperatorOperationKind::CreateWorkload => Write::Create(manifest(&set_json(&set))),
        OperatorOperationKind::ApplyWorkload => Write::Apply(manifest(&set_json(&set))),
        OperatorOperationKind::DeleteWorkload => Write::Delete(delete("replicasets", set)),
        OperatorOperationKind::SetPolicy => {
            let settings = HashMap::from([("node-eviction-rate".into(), "0.2".into())]);
            Write::Policy(PolicyChange { settings })
        }
        OperatorOperationKind::SetAggregator => {
            Write::Aggregator(AggregatorScope { name: format!("rack-{suffix}"), nodes: vec!["rack-*".into()] })
        }
        OperatorOperationKind::CreateToken => Write::CreateToken(TokenCreation {
            id: token,
            hash: vec![7; 32].into(),
            node: String::new(),
            ttl_ms: 600_000,
        }),
        OperatorOperationKind::RevokeToken => Write::RevokeToken(TokenRevocation { id: token }),
    }
}

fn manifest(object: &Value) -> ManifestWrite {
    ManifestWrite { object: object.to_string().into() }
}

fn node_json(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn pod_json(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec()})
}

fn set_json(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec()},
        },
    })
}

fn spec() -> Value {
    json!({"containers": [{"name": "main", "image": "none"}]})
}

fn pairs(name: &str) -> PairsEdit {
    let set = HashMap::from([("rack".to_owned(), "r1".to_owned())]);
    PairsEdit { name: name.into(), set, overwrite: true, ..PairsEdit::default() }
}

fn delete(kind: &str, name: String) -> Delete {
    Delete { kind: kind.into(), name, ..Delete::default() }
}
