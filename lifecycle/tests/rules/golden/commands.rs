//! Golden bytes of commands: every operation, every origin, a batch, and drafts with all their parts.

use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::command::{Batch, Command, Origin, Precondition};
use muster_lifecycle::meta::{OwnerReference, Revision, Uid};
use muster_lifecycle::node::{NodeDraft, NodeInfo, NodeStatus};
use muster_lifecycle::pod::{PodDraft, PodTemplate};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;

use crate::command::every_operation::every_operation;
use crate::fixture::cluster::*;
use crate::fixture::fleet::status;
use crate::fixture::pods::pod;
use crate::golden::encoded;

#[test]
fn commands_keep_their_bytes() {
    let mut golden = GoldenBytes::default();
    for operation in every_operation() {
        golden.pin(format!("operation/{}", operation.label()), encoded(&operation));
    }
    let origins = [
        ("operator", alice()),
        ("controller", Origin::Controller { term: 300 }),
        ("replica", Origin::Replica { id: ReplicaId(2) }),
        ("node", Origin::Node { name: Text::from("a") }),
    ];
    origins.iter().for_each(|(name, origin)| golden.pin(format!("origin/{name}"), encoded(origin)));
    let command = Command { origin: alice(), request: request(7, 300), operation: cordon("a", true).into() };
    golden.pin("batch", encoded(&Batch { stamp: stamp(1), commands: vec![command] }));
    let precondition = Precondition { revision: Some(Revision(300)), uid: Some(Uid(7)) };
    golden.pin("precondition", encoded(&precondition));
    golden.pin("node-draft", encoded(&whole_node()));
    golden.pin("pod-draft", encoded(&whole_pod()));
    golden.check(Path::new("golden/commands.txt"));
}

fn owners() -> Option<Box<[OwnerReference]>> {
    let (api_version, kind, name) = (Text::from("v1"), Text::from("K"), Text::from("o"));
    let owner = OwnerReference { api_version, kind, name, uid: Uid(1), controller: true, block_owner_deletion: false };
    Some(Box::new([owner]))
}

fn whole_node() -> NodeDraft {
    let info = NodeInfo { boot_id: Text::from("b"), swap_capacity: Some(1), ..NodeInfo::default() };
    let addresses = Box::new([address("InternalIP", "10.0.0.1")]);
    let capacity = resources("cpu=1500m memory=1Gi");
    NodeDraft {
        name: Text::from("a"),
        labels: Some(pairs("k=v")),
        annotations: Some(pairs("n=w")),
        finalizers: Some(Box::new([Text::from("f/g")])),
        owners: owners(),
        pod_cidrs: Some(Box::new(["10.0.0.0/24".parse().expect("a sample")])),
        provider_id: Some(Text::from("p")),
        unschedulable: Some(true),
        taints: Some(taints("t=v:NoExecute")),
        status: Some(NodeStatus { capacity, addresses, info: Some(Box::new(info)), ..status("Ready=Unknown") }),
        unmodelled: Some(Text::from("{}")),
    }
}

fn whole_pod() -> PodDraft {
    let template = PodTemplate {
        tolerations: Some(muster_lifecycle::toleration::with_defaults(&[], muster_lifecycle::time::Period(300_000))),
        priority: Some(-7),
        grace: Some(30),
        node_selector: Some(pairs("k=v")),
        requests: resources("cpu=1"),
        host_network: true,
        has_containers: true,
        unmodelled: Some(Text::from("{}")),
    };
    PodDraft { node: Some(Text::from("a")), owners: owners(), template, ..pod("p") }
}
