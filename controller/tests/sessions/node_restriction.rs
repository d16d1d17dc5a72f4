//! NR-1 to NR-5 and AZ-1 to AZ-3 at the doors: every call with a node's identity, and every message of a session with
//! another node's name or pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream;
use muster_controller::door::listener::{CertificateLife, Peer};
use muster_controller::operator::service::OperatorService;
use muster_controller::server::prove_replica;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::pod::Phase;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::identity::{Identity, Role};
use muster_proto::v1;
use muster_proto::v1::agent_client::AgentClient;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::enrolment_client::EnrolmentClient;
use muster_proto::v1::operator_server::Operator;
use muster_proto::v1::server_message::Message as Down;
use tonic::{Code, Request};

use crate::FIRST;
use crate::agent::{Agent, dial, hello, node_json};
use crate::cluster::Cluster;
use crate::enrolment::csr;
use crate::pods::{pods_taken, report};

const AGENT_PROTO: &str = include_str!("../../../proto/muster/v1/agent.proto");
const ENROLMENT_PROTO: &str = include_str!("../../../proto/muster/v1/enrolment.proto");
const OPERATOR_PROTO: &str = include_str!("../../../proto/muster/v1/operator.proto");

/// The calls in a protocol file, so that a new one cannot be forgotten here.
fn calls(proto: &str) -> BTreeSet<&str> {
    let calls = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    calls.filter_map(|call| call.split_once('(')).map(|(name, _)| name).collect()
}

/// A request as a door passes it on for that node.
fn as_node<T>(cluster: &Cluster, name: &str, message: T) -> Request<T> {
    let user = format!("system:node:{name}");
    let groups = vec!["system:nodes".to_owned()];
    let kind = Role::Node(name.to_owned());
    let identity =
        Arc::new(Identity { user, groups, fleet: cluster.members.fleet.id().clone(), kind, key: Fingerprint([0; 32]) });
    let mut request = Request::new(message);
    request.extensions_mut().insert(Peer {
        identity,
        remote: "127.0.0.1:1".parse().unwrap(),
        validity: CertificateLife::default(),
    });
    request
}

#[tokio::test]
async fn a_node_may_make_no_call_of_the_operators() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let service = OperatorService::new(cluster.replica(ReplicaId(1)).clone());
    let before = cluster.position(ReplicaId(1));
    let get = v1::GetRequest { kind: "nodes".into(), name: "a".into(), ..v1::GetRequest::default() };
    let remove = v1::MemberRequest { action: Some(v1::member_request::Action::Remove(1)) };
    let answers = [
        ("Get", service.get(as_node(&cluster, "a", get)).await.err()),
        ("List", service.list(as_node(&cluster, "a", v1::ListRequest::default())).await.err()),
        ("Watch", service.watch(as_node(&cluster, "a", v1::WatchRequest::default())).await.err()),
        ("Write", service.write(as_node(&cluster, "a", v1::WriteRequest::default())).await.err()),
        ("Status", service.status(as_node(&cluster, "a", v1::StatusRequest {})).await.err()),
        ("Explain", service.explain(as_node(&cluster, "a", v1::ExplainRequest::default())).await.err()),
        ("Pulses", service.pulses(as_node(&cluster, "a", v1::PulsesRequest::default())).await.err()),
        ("Member", service.member(as_node(&cluster, "a", remove)).await.err()),
        ("Backup", service.backup(as_node(&cluster, "a", v1::BackupRequest {})).await.err()),
    ];
    assert_eq!(answers.iter().map(|(call, _)| *call).collect::<BTreeSet<_>>(), calls(OPERATOR_PROTO));
    for (call, answer) in answers {
        let answer = answer.unwrap_or_else(|| panic!("{call} was answered"));
        assert_eq!(answer.code(), Code::PermissionDenied, "{call}: {answer}");
        assert!(answer.message().starts_with("system:node:a (node) may not "), "{call}: {answer}");
    }
    assert_eq!(cluster.position(ReplicaId(1)), before);
}

#[tokio::test]
async fn a_node_may_make_no_call_of_the_replicas() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let denied = prove_replica(as_node(&cluster, "a", ())).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "every call at this door is refused");
    let (ca, issued) =
        (cluster.members.fleet.client_authority().certificate_pem(), cluster.members.fleet.issue_node("a").unwrap());
    let tls = muster_pki::tls::agent(ca, &issued.certificate, &issued.key).unwrap();
    let connected = muster_client::connect(tls, &cluster.plan(ReplicaId(1)).peer).await;
    assert!(connected.is_err(), "its certificate is of another CA than the replicas'");
}

#[tokio::test]
async fn a_node_may_make_these_calls_of_the_agents() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let mut client =
        AgentClient::new(dial(&cluster, ReplicaId(1), &cluster.members.fleet.issue_node("a").unwrap()).await);
    let answers = [
        ("WhoIs", client.who_is(v1::WhoIsRequest {}).await.err().map(|status| status.code())),
        ("Session", client.session(stream::empty()).await.err().map(|status| status.code())),
        ("Carry", client.carry(stream::empty()).await.err().map(|status| status.code())),
    ];
    assert_eq!(answers.iter().map(|(call, _)| *call).collect::<BTreeSet<_>>(), calls(AGENT_PROTO));
    let expected = [("WhoIs", None), ("Session", None), ("Carry", Some(Code::PermissionDenied))];
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn a_node_may_make_these_calls_of_enrolment() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let mut client =
        EnrolmentClient::new(dial(&cluster, ReplicaId(1), &cluster.members.fleet.issue_node("a").unwrap()).await);
    let join = v1::JoinRequest { token: String::new(), node: "b".to_owned(), csr: csr() };
    let answers = [
        ("Join", client.join(join).await.err().map(|status| status.code())),
        ("Renew", client.renew(v1::RenewRequest { csr: csr() }).await.err().map(|status| status.code())),
    ];
    assert_eq!(answers.iter().map(|(call, _)| *call).collect::<BTreeSet<_>>(), calls(ENROLMENT_PROTO));
    assert_eq!(answers, [("Join", Some(Code::PermissionDenied)), ("Renew", None)]);
}

#[tokio::test]
async fn no_message_of_a_session_changes_another_node_or_its_pods() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (_other, _) = Agent::register(&cluster, ReplicaId(1), hello("b", FIRST)).await;
    cluster.bind("p", "b").await;
    let (node, pod) = (cluster.node(ReplicaId(1), "b"), cluster.pod(ReplicaId(1), "p"));

    // The hello.
    let mut agent = Agent::open(&cluster, ReplicaId(1), "a").await;
    agent.say(Up::Hello(hello("b", FIRST)));
    let status = agent.refusal().await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");

    // The registration.
    let foreign = node_json("b");
    let refused = r#"metadata.name: "b" is not "a": a node speaks for itself alone (NR-1)"#;
    assert_eq!(registering(&cluster, &foreign).await, (Code::PermissionDenied, refused.to_owned()));

    // The pods, and what runs. A beat, a status and a goodbye name no node: they are about the node of the certificate.
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    agent.say(Up::Pods(report(1, "Running", false)));
    let taken = pods_taken(&mut agent).await;
    let refused = r#"pods[default/p]: is not bound to node "a": a node reports on its own pods alone (NR-5)"#;
    assert_eq!(taken, v1::PodsTaken { sequence: 1, refused: refused.to_owned() });
    agent.say(Up::Pods(report(2, "Failed", true)));
    assert_eq!(pods_taken(&mut agent).await.refused, refused, "nor may it say that it has stopped");

    assert_eq!(
        (cluster.node(ReplicaId(1), "b"), cluster.pod(ReplicaId(1), "p")),
        (node, pod.clone()),
        "nothing has changed"
    );
    assert_eq!(pod.unwrap().status.phase, Phase::Pending);
}

#[tokio::test]
async fn nr_2_to_nr_4_a_registration_with_restricted_fields_is_refused() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let before = cluster.position(ReplicaId(1)).0;
    let owner = r#"{"apiVersion":"v1","kind":"K","name":"o","uid":"00000000-0000-0000-0000-000000000001"}"#;
    let metadata = [
        (r#""labels":{"node-restriction.kubernetes.io/x":"y"}"#, "metadata.labels[node-restriction.kubernetes.io/x]"),
        (r#""labels":{"node-role.kubernetes.io/master":""}"#, "metadata.labels[node-role.kubernetes.io/master]"),
        (&format!(r#""ownerReferences":[{owner}]"#), "metadata.ownerReferences"),
    ];
    for (said, field) in metadata {
        let node = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"a",{said}}}}}"#);
        let (code, message) = registering(&cluster, &node).await;
        assert_eq!(code, Code::PermissionDenied, "{message}");
        assert!(message.starts_with(&format!("{field}: is not for a node's agent to set (NR-")), "{message}");
    }
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},
                   "spec":{"configSource":{"configMap":{"name":"c"}}}}"#;
    let expected = "spec.configSource: is not for a node's agent to set (NR-2)".to_owned();
    assert_eq!(registering(&cluster, node).await, (Code::PermissionDenied, expected));
    assert_eq!(cluster.position(ReplicaId(1)).0, before, "nothing has changed");
    assert!(cluster.replica(ReplicaId(1)).current().state.node("a").is_none());
}

/// The refusal of a registration by node `a` with this manifest.
async fn registering(cluster: &Cluster, node: &str) -> (Code, String) {
    let mut agent = Agent::greet(cluster, ReplicaId(1), hello("a", FIRST)).await;
    assert!(matches!(agent.hear().await, Down::RegistrationWanted(_)));
    agent.say(Up::Register(v1::Register { node: node.to_owned().into(), running: None }));
    let status = agent.refusal().await;
    (status.code(), status.message().to_owned())
}
