//! Tests of pods over agents' sessions: orders down, reports up, and what a node that was away has to confirm first.

use muster_lifecycle::command::{LeaderOperation, OperatorOperation, Origin, Precondition};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::pod::{Phase, Pod, PodDraft, PodKey, PodTemplate};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::pod_order::Action;
use muster_proto::v1::server_message::Message as Down;

use tonic::Code;

use crate::agent::{Agent, Aggregator, hello, status_json};
use crate::cluster::{Cluster, until};
use crate::{FIRST, SECOND};

const UID: Uid = Uid(0xb0d);

impl Cluster {
    pub async fn bind(&self, name: &str, node: &str) {
        let template = PodTemplate { has_containers: true, ..PodTemplate::default() };
        let key = PodKey::new("default", name);
        let draft = PodDraft { key, node: Some(node.into()), template, ..PodDraft::default() };
        self.operate(OperatorOperation::CreatePod { draft: Box::new(draft), uid: UID }).await;
    }

    async fn delete_pod(&self, name: &str) {
        let (key, precondition) = (PodKey::new("default", name), Precondition::default());
        self.operate(OperatorOperation::DeletePod { key, grace: Some(7), precondition }).await;
    }

    pub fn pod(&self, id: ReplicaId, name: &str) -> Option<Pod> {
        self.replica(id).current().state.pods().get(&PodKey::new("default", name)).map(|pod| pod.as_ref().clone())
    }

    /// Makes the leader mark the node Unknown.
    async fn silence(&self, id: ReplicaId, name: &str) {
        let (node, term) = (self.node(id, name), self.replica(id).term());
        let operation = LeaderOperation::MarkSilent {
            name: Text::from(name),
            incarnation: node.incarnation,
            from: node.status.ready().map(|ready| ready.status),
            heard: None,
            decided: self.replica(id).feed().stamp().cluster,
        };
        self.write(Origin::Controller { term }, operation).await;
    }
}

pub fn report(sequence: u64, phase: &str, stopped: bool) -> v1::PodsReport {
    let pod = v1::PodState {
        namespace: "default".into(),
        name: "p".into(),
        uid: UID.0.to_be_bytes().to_vec().into(),
        phase: phase.into(),
        ready: phase == "Running",
        stopped,
        ..v1::PodState::default()
    };
    v1::PodsReport { sequence, pods: vec![pod] }
}

pub async fn pods_taken(agent: &mut Agent) -> v1::PodsTaken {
    loop {
        if let Down::PodsTaken(taken) = agent.hear().await {
            return taken;
        }
    }
}

#[tokio::test]
async fn a_pod_is_ordered_reported_stopped_and_removed() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    cluster.bind("p", "a").await;
    let orders = agent.ordered().await.orders;
    assert_eq!((orders[0].action(), orders[0].name.as_str()), (Action::Run, "p"));
    let manifest: serde_json::Value = serde_json::from_slice(&orders[0].manifest).unwrap();
    assert_eq!(manifest["spec"]["nodeName"], "a");
    agent.say(Up::Pods(report(1, "Running", false)));
    assert_eq!(pods_taken(&mut agent).await, v1::PodsTaken { sequence: 1, refused: String::new() });
    let pod = cluster.pod(ReplicaId(1), "p").unwrap();
    assert!(pod.is_ready() && pod.status.phase == Phase::Running, "{pod:?}");
    cluster.delete_pod("p").await;
    let orders = agent.ordered().await.orders;
    assert_eq!((orders[0].action(), orders[0].grace_seconds), (Action::Stop, 7));
    agent.say(Up::Pods(report(2, "Succeeded", true)));
    assert_eq!(pods_taken(&mut agent).await.refused, "");
    assert_eq!(cluster.pod(ReplicaId(1), "p"), None);
    assert_eq!(agent.ordered().await.orders[0].action(), Action::Forget);
}

#[tokio::test]
async fn an_unreadable_report_is_refused_with_the_reason() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    cluster.bind("p", "a").await;
    agent.say(Up::Pods(report(1, "Dancing", false)));
    let taken = pods_taken(&mut agent).await;
    assert!(taken.refused.starts_with("pods.phase: \"Dancing\" is not one of"), "{taken:?}");
    assert_eq!(cluster.pod(ReplicaId(1), "p").unwrap().status.phase, Phase::Pending);
}

/// I-12.
#[tokio::test]
async fn i_12_a_node_that_returns_is_ready_once_pods_deleted_meanwhile_have_stopped() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    cluster.bind("p", "a").await;
    agent.say(Up::Pods(report(1, "Running", false)));
    pods_taken(&mut agent).await;
    cluster.silence(ReplicaId(1), "a").await;
    cluster.delete_pod("p").await;
    agent.report(2, &status_json(9));
    let refused = agent.status_taken().await.refused;
    assert!(refused.contains("cannot be ready yet: 1 pods") && refused.contains("default/p"), "{refused}");
    assert!(!cluster.node(ReplicaId(1), "a").is_ready());
    agent.say(Up::Pods(report(3, "Succeeded", true)));
    pods_taken(&mut agent).await;
    agent.report(4, &status_json(9));
    assert_eq!(agent.status_taken().await.refused, "");
    assert!(cluster.node(ReplicaId(1), "a").is_ready());
}

/// A replica that lags behind does not take back what an agent has seen elsewhere, and forgets nothing once it has
/// caught up.
#[tokio::test]
async fn orders_wait_until_the_replica_has_applied_the_agents_revision() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    drop(agent);
    cluster.bind("p", "a").await;
    let ahead = cluster.replica(ReplicaId(1)).current().state.revision().0 + 1;
    let mut agent =
        Agent::greet(&cluster, ReplicaId(1), v1::Hello { orders_revision: ahead, ..hello("a", FIRST) }).await;
    agent.welcomed().await;
    cluster
        .operate(OperatorOperation::CordonNode {
            name: "a".into(),
            unschedulable: true,
            precondition: Precondition::default(),
        })
        .await;
    let orders = agent.ordered().await;
    assert!(orders.revision >= ahead && orders.complete, "{orders:?}");
    assert_eq!(orders.orders[0].action(), Action::Run);
}

#[tokio::test]
async fn nodes_of_an_aggregator_get_orders_too() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    cluster.operate(OperatorOperation::SetAggregator { name: "rack".into(), nodes: vec!["r-*".into()] }).await;
    let (agent, _) = Agent::register(&cluster, ReplicaId(1), hello("r-1", FIRST)).await;
    drop(agent);
    until("the node is free", || cluster.running[&ReplicaId(1)].sessions.figures().sessions() == 0).await;
    cluster.bind("p", "r-1").await;
    let mut aggregator = Aggregator::greet(&cluster, ReplicaId(1), "rack", FIRST).await;
    aggregator.hear().await;
    aggregator.bind(&[(5, "r-1")]);
    aggregator.bound().await;
    let (handle, orders) = aggregator.carried().await;
    assert!(matches!(&orders, Down::Pods(orders) if orders.orders[0].name == "p"), "{orders:?}");
    aggregator.say(AggregatorUp::Pods(v1::CarriedPods { handle, report: Some(report(9, "Running", false)) }));
    let (handle, taken) = aggregator.carried().await;
    assert_eq!((handle, taken), (5, Down::PodsTaken(v1::PodsTaken { sequence: 9, refused: String::new() })));
    let ready = cluster.pod(ReplicaId(1), "p").unwrap().status.condition("Ready").map(|ready| ready.status);
    assert_eq!(ready, Some(ConditionStatus::True));
}

/// A process that has just begun remembers neither its orders nor what it has stopped for good. A replica that cannot
/// ask a leader may be hours behind.
#[tokio::test]
async fn a_restarted_agent_gets_no_orders_from_a_replica_without_a_leader() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader().await;
    let (agent, _) = Agent::register(&cluster, leader, hello("a", FIRST)).await;
    drop(agent);
    cluster.bind("p", "a").await;
    let left = ReplicaId(if leader == ReplicaId(3) { 2 } else { 3 });
    until("it has the pod", || cluster.pod(left, "p").is_some()).await;
    for id in [1, 2, 3].map(ReplicaId).into_iter().filter(|id| *id != left) {
        cluster.stop(id).await;
    }
    let mut agent = Agent::greet(&cluster, left, hello("a", FIRST)).await;
    agent.welcomed().await;
    let ordered = tokio::time::timeout(std::time::Duration::from_secs(2), agent.ordered()).await;
    assert!(ordered.is_err(), "{ordered:?}");
}

/// A new leader hears of sessions that begin before it hears of those that go on. The clone has a copy of the agent's
/// disk, so it knows that there were orders.
#[tokio::test]
async fn i_14_a_clone_gets_no_orders_while_the_originals_claim_is_still_to_come() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader().await;
    let others: Vec<ReplicaId> = cluster.running.keys().copied().filter(|id| *id != leader).collect();
    let (here, there) = (others[0], others[1]);
    let (mut agent, _) = Agent::register(&cluster, here, hello("a", FIRST)).await;
    cluster.bind("p", "a").await;
    let orders = agent.ordered().await;
    assert_eq!(orders.orders.len(), 1);
    until("the pod is known everywhere", || others.iter().all(|id| cluster.pod(*id, "p").is_some())).await;
    cluster.stop(leader).await;
    let mut refusals = 0;
    while refusals < 3 {
        let copy = v1::Hello { orders_revision: orders.revision, ..hello("a", SECOND) };
        let mut clone = Agent::greet(&cluster, there, copy).await;
        let status = loop {
            match clone.try_hear().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a reason"),
                Err(status) => break status,
            }
        };
        assert_eq!(clone.heard_orders(), 0, "a clone got orders");
        refusals += usize::from(status.code() == Code::AlreadyExists);
    }
    agent.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    assert!(matches!(agent.hear().await, Down::Acknowledged(_)), "the original goes on");
}
