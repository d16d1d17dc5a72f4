//! RG-4 on a bound stream: an agent that comes again says what its machine is now, and only that is taken.

use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::server_message::Message as Down;

use crate::FIRST;
use crate::agent::{Agent, Aggregator, hello, status_json};
use crate::cluster::Cluster;

const ZONE: &str = "topology.kubernetes.io/zone";

fn registration(name: &str, labels: &[(&str, &str)]) -> v1::Register {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!(r#""{key}":"{value}""#)).collect();
    let (labels, status) = (labels.join(","), status_json(0));
    let taints = r#"[{"key":"dedicated","effect":"NoSchedule"}]"#;
    let node = format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","labels":{{{labels}}}}},
            "spec":{{"taints":{taints}}},"status":{status}}}"#
    );
    v1::Register { node: node.into(), running: None }
}

async fn registered(agent: &mut Agent, register: v1::Register) -> String {
    agent.say(Up::Register(register));
    loop {
        if let Down::Registered(registered) = agent.hear().await {
            return registered.refused;
        }
    }
}

async fn create(cluster: &Cluster, name: &str) {
    let draft = Box::new(NodeDraft { name: name.into(), ..NodeDraft::default() });
    cluster.operate(OperatorOperation::CreateNode { draft, uid: Uid(rand::random()) }).await;
}

fn label(cluster: &Cluster, name: &str, key: &str) -> Option<String> {
    cluster.node(ReplicaId(1), name).meta.labels.get(key).map(ToString::to_string)
}

#[tokio::test]
async fn rg_4_machine_labels_are_reconciled_once_and_nothing_else() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    // An operator made the Node, without knowing the machine.
    create(&cluster, "a").await;
    let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.welcomed().await;
    let words = registration("a", &[(ZONE, "z1"), ("kubernetes.io/os", "linux"), ("team", "x")]);
    assert_eq!(registered(&mut agent, words.clone()).await, "");
    let node = cluster.node(ReplicaId(1), "a");
    assert_eq!((label(&cluster, "a", ZONE).as_deref(), label(&cluster, "a", "team")), (Some("z1"), None));
    assert!(!node.is_ready() && node.spec.taints.iter().all(|taint| taint.key != *"dedicated"), "{node:?}");

    let before = cluster.position(ReplicaId(1));
    assert_eq!(registered(&mut agent, words.clone()).await, "");
    agent.say(Up::Goodbye(v1::Goodbye {}));
    assert!(agent.try_hear().await.unwrap().is_none());
    let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.welcomed().await;
    assert_eq!(registered(&mut agent, words).await, "");
    assert_eq!(cluster.position(ReplicaId(1)), before, "what is known is not written");

    assert_eq!(registered(&mut agent, registration("a", &[(ZONE, "z2")])).await, "");
    assert_eq!(label(&cluster, "a", ZONE).as_deref(), Some("z2"));
    assert_eq!(label(&cluster, "a", "kubernetes.io/os").as_deref(), Some("linux"), "what is not mentioned stays");
}

#[tokio::test]
async fn a_refused_registration_does_not_end_the_session() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    create(&cluster, "a").await;
    create(&cluster, "b").await;
    let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.welcomed().await;
    let before = (cluster.node(ReplicaId(1), "a"), cluster.node(ReplicaId(1), "b"));
    let unreadable = v1::Register { node: "{".into(), running: None };
    let cases = [
        (registration("b", &[(ZONE, "z2")]), "(NR-1)"),
        (registration("a", &[(ZONE, "z2"), ("node-role.kubernetes.io/master", "")]), "(NR-4)"),
        (registration("a", &[(ZONE, "not/valid")]), "is not a label value"),
        (unreadable, "not valid JSON"),
    ];
    for (register, wanted) in cases {
        let refused = registered(&mut agent, register).await;
        assert!(refused.contains(wanted), "{refused}");
    }
    assert_eq!((cluster.node(ReplicaId(1), "a"), cluster.node(ReplicaId(1), "b")), before, "nothing has changed");
    agent.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    assert!(matches!(agent.hear().await, Down::Acknowledged(_)), "it goes on");
}

#[tokio::test]
async fn rg_4_machine_labels_of_an_aggregators_node_are_reconciled_too() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    cluster.operate(OperatorOperation::SetAggregator { name: "rack".into(), nodes: vec!["*".into()] }).await;
    create(&cluster, "a").await;
    let mut aggregator = Aggregator::greet(&cluster, ReplicaId(1), "rack", FIRST).await;
    aggregator.hear().await;
    aggregator.bind(&[(7, "a")]);
    aggregator.all_bound(1).await;
    for _ in 0..2 {
        let register = Some(registration("a", &[(ZONE, "z2"), ("team", "x")]));
        aggregator.say(AggregatorUp::Register(v1::CarriedRegister { handle: 7, register }));
        assert_eq!(aggregator.carried().await, (7, Down::Registered(v1::Registered::default())));
    }
    assert_eq!((label(&cluster, "a", ZONE).as_deref(), label(&cluster, "a", "team")), (Some("z2"), None));
}
