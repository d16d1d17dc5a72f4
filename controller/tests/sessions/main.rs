//! Tests of agents at real TLS doors: admission to a session, the messages on it, and one session per node.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a helper that fails is a failed test")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else is said fails the test")]

mod agent;
mod cluster;
mod enrolment;
mod node_restriction;
mod pods;
mod reconcile;
mod trouble;

use agent::{Agent, Aggregator, dial, hello, node_json, status_json};
use cluster::{Cluster, until};
use futures::stream;
use muster_controller::session::figures::RefusalReason;
use muster_lifecycle::command::{LeaderOperation, OperatorOperation, Origin};
use muster_lifecycle::node::{ConditionStatus, Node};
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::aggregator_reply::Message as AggregatorDown;
use muster_proto::v1::server_message::Message as Down;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const FIRST: u64 = 0xab12_0000_0000_0001;
const SECOND: u64 = 0xcd34_0000_0000_0002;

// === admission ===

#[tokio::test]
async fn i_13_a_node_certificate_opens_a_session_for_its_own_name_only() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (before, _) = cluster.position(ReplicaId(1));
    let mut agent = Agent::open(&cluster, ReplicaId(1), "a").await;
    agent.say(Up::Hello(hello("b", FIRST)));
    let status = agent.refusal().await;
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("\"a\"") && status.message().contains("\"b\""), "{status}");

    let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    assert!(matches!(agent.hear().await, Down::RegistrationWanted(_)));
    agent.say(Up::Register(v1::Register { node: node_json("b").into(), running: None }));
    assert_eq!(agent.refusal().await.code(), Code::PermissionDenied);
    assert_eq!(cluster.position(ReplicaId(1)).0, before);
    assert_eq!(cluster.running[&ReplicaId(1)].sessions.figures().refused(RefusalReason::Identity), 2);
}

#[tokio::test]
async fn i_13_roles_do_not_mix() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let node = cluster.members.fleet.issue_node("a").unwrap();
    let mut client = v1::agent_client::AgentClient::new(dial(&cluster, ReplicaId(1), &node).await);
    let status = client.carry(stream::empty()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let aggregator = cluster.members.fleet.issue_aggregator("rack").unwrap();
    let mut client = v1::agent_client::AgentClient::new(dial(&cluster, ReplicaId(1), &aggregator).await);
    let status = client.session(stream::empty()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(client.who_is(v1::WhoIsRequest {}).await.unwrap().into_inner().replica, 1);
}

#[tokio::test]
async fn an_unknown_node_is_asked_to_register_and_then_welcomed() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    // Also one that claims to have been welcomed before: this replica has made sure that no replica knows it.
    let (_agent, welcome) =
        Agent::register(&cluster, ReplicaId(1), v1::Hello { incarnation: 99, ..hello("a", FIRST) }).await;
    let node = cluster.node(ReplicaId(1), "a");
    assert_eq!((welcome.replica, welcome.fleet.as_str()), (1, cluster.members.fleet.id().as_str()));
    assert_eq!((welcome.incarnation, welcome.uid), (node.incarnation.0, node.meta.uid.to_string()));
    assert!(node.is_ready() && !welcome.status_wanted);
    let terms = welcome.terms.unwrap();
    assert_eq!((terms.beat_interval_ms, terms.grace_ms, terms.backoff_cap_ms), (10_000, 40_000, 10_000));
    assert_eq!(heard_through(&cluster, ReplicaId(1), &node), Some(ReplicaId(1)), "a welcome counts as a beat");
    assert_eq!(cluster.running[&ReplicaId(1)].sessions.figures().sessions(), 1);
}

#[tokio::test]
async fn a_session_that_resumes_writes_nothing() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, welcome) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.say(Up::Goodbye(v1::Goodbye {}));
    assert!(agent.try_hear().await.unwrap().is_none(), "an orderly end");
    let before = cluster.position(ReplicaId(1));
    for incarnation in [welcome.incarnation, 0] {
        let mut agent = Agent::greet(&cluster, ReplicaId(1), v1::Hello { incarnation, ..hello("a", FIRST) }).await;
        assert_eq!(agent.welcomed().await.incarnation, welcome.incarnation);
        agent.say(Up::Goodbye(v1::Goodbye {}));
        assert!(agent.try_hear().await.unwrap().is_none());
    }
    assert_eq!(cluster.position(ReplicaId(1)), before);
    until("all sessions are closed", || cluster.running[&ReplicaId(1)].sessions.figures().sessions() == 0).await;
}

#[tokio::test]
async fn a_node_without_a_status_of_its_own_is_asked_for_one() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    assert!(matches!(agent.hear().await, Down::RegistrationWanted(_)));
    let bare = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
    agent.say(Up::Register(v1::Register { node: bare.to_owned().into(), running: None }));
    assert!(agent.welcomed().await.status_wanted);
    agent.report(1, &status_json(1));
    assert!(agent.status_taken().await.written);
    // The leader marks the node Unknown, and asks the node for its status.
    let node = cluster.node(ReplicaId(1), "a");
    let operation = LeaderOperation::MarkSilent {
        name: "a".into(),
        incarnation: node.incarnation,
        from: Some(ConditionStatus::True),
        heard: None,
        decided: cluster.replica(ReplicaId(1)).feed().stamp().cluster,
    };
    let term = cluster.replica(ReplicaId(1)).term();
    cluster.write(Origin::Controller { term }, operation).await;
    assert!(matches!(agent.hear().await, Down::StatusWanted(wanted) if wanted.revision > node.meta.revision.0));
    agent.report(2, &status_json(2));
    assert!(agent.status_taken().await.written);
    assert!(cluster.node(ReplicaId(1), "a").is_ready());
}

// === one session per node ===

#[tokio::test]
async fn i_14_a_second_instance_is_refused_with_the_name_of_the_holder() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    let mut clone = Agent::greet(&cluster, ReplicaId(1), hello("a", SECOND)).await;
    let status = clone.refusal().await;
    assert_eq!(status.code(), Code::AlreadyExists);
    for part in ["node \"a\" has a session by another instance (ab12…) at replica 1 from 127.", "s ago; two agents"] {
        assert!(status.message().contains(part), "{status}");
    }
    agent.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    assert!(matches!(agent.hear().await, Down::Acknowledged(_)), "the first goes on");
    // Once the first has left, the second may come.
    agent.say(Up::Goodbye(v1::Goodbye {}));
    assert!(agent.try_hear().await.unwrap().is_none());
    welcomed_in_the_end(&cluster, ReplicaId(1), &hello("a", SECOND)).await;
}

#[tokio::test]
async fn the_same_instance_takes_its_session_over() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut before, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    let mut after = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    after.welcomed().await;
    let status = before.refusal().await;
    assert_eq!((status.code(), status.message()), (Code::Aborted, "continued at replica 1"));
    after.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    assert!(matches!(after.hear().await, Down::Acknowledged(_)));
    // The end of the former session did not release the present one.
    let mut clone = Agent::greet(&cluster, ReplicaId(1), hello("a", SECOND)).await;
    assert_eq!(clone.refusal().await.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn i_14_one_session_across_replicas_and_leaders() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader().await;
    let others: Vec<ReplicaId> = cluster.running.keys().copied().filter(|id| *id != leader).collect();
    let (here, there) = (others[0], others[1]);
    let (mut agent, _) = Agent::register(&cluster, here, hello("a", FIRST)).await;
    until("the node is known everywhere", || {
        cluster.running.keys().all(|id| cluster.replica(*id).current().state.node("a").is_some())
    })
    .await;
    let refused = Agent::greet(&cluster, there, hello("a", SECOND)).await.refusal().await;
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains(&format!("at replica {here} from 127.")), "{refused}");
    // The agent moves, and its former replica hears of it.
    let mut moved = Agent::greet(&cluster, there, v1::Hello { moving: true, ..hello("a", FIRST) }).await;
    moved.welcomed().await;
    let status = agent.refusal().await;
    assert_eq!((status.code(), status.message()), (Code::Aborted, format!("continued at replica {there}").as_str()));
    // A new leader learns from the replicas which sessions they hold.
    cluster.stop(leader).await;
    cluster.leader().await;
    let mut refusals = 0;
    while refusals < 3 {
        // While no leader can be asked, or the new leader has not been told yet, the clone may get in for a moment.
        let mut clone = Agent::greet(&cluster, here, hello("a", SECOND)).await;
        let status = match clone.try_hear().await {
            Ok(_) => clone.refusal().await,
            Err(status) => status,
        };
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
        refusals += 1;
    }
    moved.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    assert!(matches!(moved.hear().await, Down::Acknowledged(_)), "and the first goes on");
}

// === what is said on a session ===

#[tokio::test]
async fn s_1_a_status_that_differs_in_times_only_is_no_write() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    let before = cluster.position(ReplicaId(1));
    agent.report(1, &status_json(33));
    let taken = v1::StatusTaken { sequence: 1, written: false, refused: String::new() };
    assert_eq!(agent.hear().await, Down::StatusTaken(taken));
    assert_eq!(cluster.position(ReplicaId(1)), before);
    agent.report(2, &status_json(34).replace("\"8\"", "\"4\""));
    let taken = v1::StatusTaken { sequence: 2, written: true, refused: String::new() };
    assert_eq!(agent.hear().await, Down::StatusTaken(taken));
    assert!(cluster.position(ReplicaId(1)) > before);
}

#[tokio::test]
async fn the_newest_of_waiting_reports_wins() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    for sequence in 1..=40 {
        agent.report(sequence, &status_json(0).replace("\"8\"", &format!("\"{sequence}\"")));
    }
    while agent.status_taken().await.sequence != 40 {}
    let node = cluster.node(ReplicaId(1), "a");
    assert_eq!(node.status.capacity.get("cpu").unwrap().to_string(), "40");
}

#[tokio::test]
async fn the_agent_of_a_deleted_node_is_told_and_registers_a_new_incarnation() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, welcome) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    let receipt = cluster.delete("a").await;
    match agent.hear().await {
        Down::Removed(removed) => {
            assert_eq!(removed.incarnation, welcome.incarnation);
            assert!(removed.revision >= receipt.revision.0);
        }
        other => panic!("not told of the removal but {other:?}"),
    }
    // Its later messages are about no node.
    agent.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    agent.report(2, &status_json(1));
    agent.say(Up::Register(v1::Register { node: node_json("a").into(), running: None }));
    assert!(agent.welcomed().await.incarnation > welcome.incarnation);
    // An agent that was suspended meanwhile is asked to register when it resumes.
    let stale = v1::Hello { incarnation: welcome.incarnation, ..hello("a", FIRST) };
    let mut agent = Agent::greet(&cluster, ReplicaId(1), stale).await;
    assert!(matches!(agent.hear().await, Down::RegistrationWanted(wanted) if wanted.why.contains("created anew")));
}

#[tokio::test]
async fn terms_follow_the_policy() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, welcome) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    set_policy(&cluster, "node-monitor-grace-period", "20s").await;
    match agent.hear().await {
        Down::Terms(terms) => {
            assert_eq!((terms.beat_interval_ms, terms.grace_ms), (5_000, 20_000));
            assert!(terms.revision > welcome.terms.unwrap().revision);
        }
        other => panic!("not told the terms but {other:?}"),
    }
}

#[tokio::test]
async fn a_replica_without_contact_acknowledges_nothing_and_moves_its_agents() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let (mut agent, welcome) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.say(Up::Beat(v1::Beat { sequence: 7, acknowledge: true }));
    assert_eq!(agent.hear().await, Down::Acknowledged(v1::Acknowledged { sequence: 7 }));
    cluster.stop(ReplicaId(2)).await;
    cluster.stop(ReplicaId(3)).await;
    match agent.hear().await {
        Down::Move(moving) => assert!(moving.why.contains("no contact to a leader"), "{}", moving.why),
        other => panic!("told {other:?}"),
    }
    agent.say(Up::Beat(v1::Beat { sequence: 8, acknowledge: true }));
    // An acknowledgement would come before the answer to the next message.
    agent.report(9, "nonsense");
    loop {
        match agent.hear().await {
            Down::Move(_) => {}
            Down::StatusTaken(taken) => break assert_eq!(taken.sequence, 9),
            other => panic!("told {other:?}"),
        }
    }
    // An agent that moves is better off where it is; an agent that has no other place is let in.
    let moving = v1::Hello { moving: true, ..hello("a", FIRST) };
    assert_eq!(Agent::greet(&cluster, ReplicaId(1), moving).await.refusal().await.code(), Code::Unavailable);
    // Not even now may another instance attach beside the first.
    assert_eq!(
        Agent::greet(&cluster, ReplicaId(1), hello("a", SECOND)).await.refusal().await.code(),
        Code::AlreadyExists
    );
    let resumed = v1::Hello { incarnation: welcome.incarnation, ..hello("a", FIRST) };
    assert_eq!(Agent::greet(&cluster, ReplicaId(1), resumed).await.welcomed().await.incarnation, welcome.incarnation);
    // This replica never says on its own word that a node is gone.
    let stranger = v1::Hello { incarnation: 99, ..hello("b", FIRST) };
    assert_eq!(Agent::greet(&cluster, ReplicaId(1), stranger).await.refusal().await.code(), Code::Unavailable);
    assert!(cluster.running[&ReplicaId(1)].sessions.figures().moves() > 0);
}

#[tokio::test]
async fn invalid_messages_are_refused_and_other_sessions_continue() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut bystander, _) = Agent::register(&cluster, ReplicaId(1), hello("b", FIRST)).await;
    for first in [Up::Beat(v1::Beat::default()), Up::Goodbye(v1::Goodbye {}), Up::Register(v1::Register::default())] {
        let mut agent = Agent::open(&cluster, ReplicaId(1), "a").await;
        agent.say(first);
        assert_eq!(agent.refusal().await.code(), Code::InvalidArgument);
    }
    let mut agent = Agent::open(&cluster, ReplicaId(1), "a").await;
    agent.say_nothing_known();
    assert_eq!(agent.refusal().await.code(), Code::InvalidArgument);
    for node in ["", "[]", "{\"kind\":\"Pod\"}", "\u{0}"] {
        let mut agent = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
        agent.say(Up::Register(v1::Register { node: node.to_owned().into(), running: None }));
        assert_eq!(agent.refusal().await.code(), Code::InvalidArgument, "{node:?}");
    }
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    for (sequence, status) in [(1, ""), (2, "{"), (3, "{\"conditions\":7}"), (4, "\"\u{fffd}\"")] {
        agent.report(sequence, status);
        let taken = agent.status_taken().await;
        assert!(taken.sequence == sequence && !taken.refused.is_empty(), "{status:?}");
    }
    // A status that the state machine rejects is refused, too.
    agent.report(5, r#"{"addresses":[{"type":"InternalIP","address":"1"},{"type":"InternalIP","address":"1"}]}"#);
    assert!(!agent.status_taken().await.refused.is_empty());
    agent.say_nothing_known();
    agent.say(Up::Hello(hello("a", FIRST)));
    assert_eq!(agent.refusal().await.code(), Code::InvalidArgument);
    wrong_bytes(&cluster).await;
    bystander.say(Up::Beat(v1::Beat { sequence: 3, acknowledge: true }));
    assert!(matches!(bystander.hear().await, Down::Acknowledged(_)));
}

/// Messages of another type where those of an agent are expected.
async fn wrong_bytes(cluster: &Cluster) {
    let issued = cluster.members.fleet.issue_node("a").unwrap();
    for (path, wanted) in [("/muster.v1.Agent/Session", true), ("/muster.v1.Agent/Carry", false)] {
        let mut client = tonic::client::Grpc::new(dial(cluster, ReplicaId(1), &issued).await);
        client.ready().await.unwrap();
        let wrong = v1::WhoIsResponse { fleet: "\u{7f}\u{7f}".into(), replica: u64::MAX, has_leader: true };
        let codec = ProstCodec::<v1::WhoIsResponse, v1::ServerMessage>::default();
        let request = Request::new(stream::iter([wrong]));
        let opened = client.streaming(request, PathAndQuery::from_static(path), codec).await;
        assert_eq!(opened.is_ok(), wanted, "{path}");
        if let Ok(response) = opened {
            assert!(response.into_inner().message().await.is_err());
        }
    }
}

#[tokio::test]
async fn a_replica_that_stops_tells_its_agents() {
    let mut cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    cluster.stop(ReplicaId(1)).await;
    let status = agent.refusal().await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("stopping"), "{status}");
}

// === aggregators ===

#[tokio::test]
async fn an_aggregator_binds_only_nodes_in_its_scope() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let mut unscoped = Aggregator::greet(&cluster, ReplicaId(1), "rack", FIRST).await;
    assert_eq!(unscoped.try_hear().await.unwrap_err().code(), Code::PermissionDenied);
    set_scope(&cluster, &["r-*"]).await;
    let mut aggregator = Aggregator::greet(&cluster, ReplicaId(1), "rack", FIRST).await;
    assert!(matches!(aggregator.hear().await, AggregatorDown::Welcome(welcome) if welcome.terms.is_some()));
    aggregator.bind(&[(5, "r-1"), (6, "other"), (1_000_000, "r-2"), (7, "r-3"), (7, "r-4")]);
    let bound = aggregator.all_bound(5).await;
    assert!(bound[0].handle == 5 && bound[0].registration_wanted && bound[0].refused.is_empty());
    assert!(bound[1].handle == 6 && bound[1].refused.contains("not in the scope"), "{bound:?}");
    assert!(bound[2..4].iter().any(|node| node.refused.contains("twice")), "{bound:?}");
    assert!(bound[4].handle == 1_000_000 && bound[4].refused.contains("below"), "{bound:?}");
    register(&mut aggregator, 5, "r-1").await;
    let node = cluster.node(ReplicaId(1), "r-1");
    assert_eq!(heard_through(&cluster, ReplicaId(1), &node), Some(ReplicaId(1)));
    // A node on the aggregator's stream cannot also have a session of its own.
    let refused = Agent::greet(&cluster, ReplicaId(1), hello("r-1", SECOND)).await.refusal().await;
    assert_eq!(refused.code(), Code::AlreadyExists);
    // The scope changes, and nodes that fell out of it are released.
    set_scope(&cluster, &["x-*"]).await;
    let fallen = aggregator.bound().await;
    assert!(fallen.iter().any(|node| node.handle == 5 && node.refused.contains("not in the scope")), "{fallen:?}");
    welcomed_in_the_end(&cluster, ReplicaId(1), &hello("r-1", SECOND)).await;
}

#[tokio::test]
async fn nodes_of_an_aggregator_beat_report_and_are_removed_like_others() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    set_scope(&cluster, &["r-*"]).await;
    let mut aggregator = Aggregator::greet(&cluster, ReplicaId(1), "rack", FIRST).await;
    assert!(matches!(aggregator.hear().await, AggregatorDown::Welcome(_)));
    aggregator.bind(&[(0, "r-0"), (1, "r-1")]);
    assert_eq!(aggregator.bound().await.len(), 2);
    register(&mut aggregator, 0, "r-0").await;
    register(&mut aggregator, 1, "r-1").await;
    let beats = |handles: &[u32]| AggregatorUp::Beats(v1::Beats { handles: handles.to_vec(), acknowledge: 0 });
    let figures = cluster.running[&ReplicaId(1)].sessions.figures();
    aggregator.say(beats(&[0, 1, 9, 9, u32::MAX]));
    let unknown: Vec<_> =
        aggregator.bound().await.into_iter().map(|node| (node.handle, node.refused.is_empty())).collect();
    assert_eq!(unknown, [(9, false), (u32::MAX, false)]);
    aggregator.say(beats(&[0, 1, 9]));
    until("the beats are counted", || figures.aggregator_beats() == 4 && figures.unknown_handles() == 4).await;
    aggregator.say(AggregatorUp::Beats(v1::Beats { handles: vec![], acknowledge: 12 }));
    assert_eq!(aggregator.hear().await, AggregatorDown::Acknowledged(v1::Acknowledged { sequence: 12 }));
    let report = v1::StatusReport { sequence: 3, status: status_json(9).into(), running: None };
    aggregator.say(AggregatorUp::Status(v1::CarriedStatus { handle: 1, report: Some(report) }));
    let (handle, told) = aggregator.carried().await;
    assert!(handle == 1 && matches!(told, Down::StatusTaken(taken) if taken.sequence == 3 && !taken.written));
    cluster.delete("r-1").await;
    let (handle, told) = aggregator.carried().await;
    assert!(handle == 1 && matches!(told, Down::Removed(_)), "{told:?}");
    register(&mut aggregator, 1, "r-1").await;
    // After an orderly release the node may come by itself.
    aggregator.say(AggregatorUp::Release(v1::Release { handles: vec![0] }));
    welcomed_in_the_end(&cluster, ReplicaId(1), &hello("r-0", SECOND)).await;
    // A stream that ends releases all its nodes.
    drop(aggregator);
    welcomed_in_the_end(&cluster, ReplicaId(1), &hello("r-1", SECOND)).await;
}

// === helpers ===

/// Retries until every replica knows that the former session has ended.
async fn welcomed_in_the_end(cluster: &Cluster, id: ReplicaId, hello: &v1::Hello) {
    let deadline = tokio::time::Instant::now() + cluster::PATIENCE;
    loop {
        match Agent::greet(cluster, id, hello.clone()).await.try_hear().await {
            Ok(Some(Down::Welcome(_))) => return,
            Ok(other) => panic!("told {other:?}"),
            Err(status) => assert_eq!(status.code(), Code::AlreadyExists, "{status}"),
        }
        assert!(tokio::time::Instant::now() < deadline, "never welcomed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn register(aggregator: &mut Aggregator, handle: u32, node: &str) {
    let register = Some(v1::Register { node: node_json(node).into(), running: None });
    aggregator.say(AggregatorUp::Register(v1::CarriedRegister { handle, register }));
    let (told, welcome) = aggregator.carried().await;
    assert_eq!(told, handle);
    assert!(matches!(welcome, Down::Welcome(_)), "{welcome:?}");
}

async fn set_scope(cluster: &Cluster, nodes: &[&str]) {
    let nodes = nodes.iter().map(|node| (*node).into()).collect();
    cluster.operate(OperatorOperation::SetAggregator { name: "rack".into(), nodes }).await;
}

async fn set_policy(cluster: &Cluster, name: &str, value: &str) {
    cluster.operate(OperatorOperation::SetPolicy { changes: vec![(name.into(), value.into())] }).await;
}

fn heard_through(cluster: &Cluster, id: ReplicaId, node: &Node) -> Option<ReplicaId> {
    cluster.running[&id].hearing.pulses().tables().last_heard(node.slot).map(|(_, through)| through)
}
