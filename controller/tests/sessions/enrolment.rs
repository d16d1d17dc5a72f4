//! Tests of machines that join, renew and are shut out, with the agent's own library, over real TLS sockets.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use muster_controller::door::DoorKind;
use muster_controller::door::listener::Door;
use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::replica::ReplicaId;
use muster_node_agent::credentials::{CredentialStore, NodeCredentials};
use muster_node_agent::enrolment::{self, EnrolmentError};
use muster_pki::{Authority, CertificateSubject, Issued, Usage, Validity, identity};
use muster_proto::certified_name::CertifiedName;
use muster_proto::token::Token;
use muster_proto::v1;
use muster_proto::v1::agent_client::AgentClient;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::enrolment_client::EnrolmentClient;
use muster_proto::v1::server_message::Message as Down;
use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::agent::{Agent, Aggregator, dial_with, hello, node_json};
use crate::cluster::{Cluster, LIFETIME, PATIENCE, RENEWAL_GRACE, until};

const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_secs(600);
/// Well below the time that a stranger may stay.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);

/// Longer than a common name, so that the certificate has it as a DNS name.
fn longest_name() -> String {
    [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".")
}

/// A machine with a state directory of its own.
struct Machine {
    _dir: TempDir,
    store: CredentialStore,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(dir.path().join("state"));
        Self { _dir: dir, store }
    }

    async fn join(&self, cluster: &Cluster, node: &str, token: &Token) -> Result<NodeCredentials, EnrolmentError> {
        enrolment::join(token, &doors(cluster), node, &self.store).await
    }
}

fn doors(cluster: &Cluster) -> Vec<String> {
    cluster.running.keys().map(|id| cluster.plan(*id).agent.to_string()).collect()
}

async fn token(cluster: &Cluster, node: Option<&str>) -> Token {
    let token = Token::draw(cluster.members.fleet.client_authority().public_key_print().unwrap(), rand::random);
    let (id, ttl_ms) = (token.id.as_str().into(), TTL.as_millis() as u64);
    let node = node.map(Into::into);
    cluster.operate(OperatorOperation::CreateToken { id, hash: token.hash(), node, ttl_ms }).await;
    token
}

async fn joined(cluster: &Cluster, node: &str) -> (Machine, NodeCredentials) {
    let (machine, token) = (Machine::new(), token(cluster, Some(node)).await);
    let credentials = machine.join(cluster, node, &token).await.unwrap();
    (machine, credentials)
}

async fn revoke(cluster: &Cluster, node: &str) {
    cluster.operate(OperatorOperation::RevokeNode { name: node.into() }).await;
}

/// The events about enrolments of `node` that replica 1 knows of.
fn refusals(cluster: &Cluster, node: &str) -> Vec<String> {
    let current = cluster.replica(ReplicaId(1)).current();
    let events = current.state.events().iter().filter(|event| event.reason() == "EnrolmentRefused");
    events.filter(|event| event.subject.name == *node).map(|event| event.message()).collect()
}

/// Says hello with these credentials and returns whether the node is admitted.
async fn greeted(cluster: &Cluster, id: ReplicaId, tls: Arc<ClientConfig>, node: &str) -> Result<Agent, Status> {
    let unreachable = |error: tonic::transport::Error| Status::aborted(error.to_string());
    let mut agent = Agent::on(dial_with(cluster, id, tls).await.map_err(unreachable)?).await?;
    agent.say(Up::Hello(hello(node, 1)));
    match agent.try_hear().await?.expect("an answer") {
        Down::Welcome(_) => {}
        Down::RegistrationWanted(_) => {
            agent.say(Up::Register(v1::Register { node: node_json(node).into(), running: None }));
            agent.try_hear().await?;
        }
        other => panic!("{other:?}"),
    }
    Ok(agent)
}

fn issue(cluster: &Cluster, authority: &Authority, (user, group): (&str, &str), until: SystemTime) -> Issued {
    let validity = Validity { from: until - LIFETIME, until };
    let (fleet, usage) = (cluster.members.fleet.id(), Usage::Client);
    authority.issue(&CertificateSubject { user, group: Some(group), fleet, usage, hosts: &[], validity }).unwrap()
}

fn client(cluster: &Cluster, issued: &Issued) -> Arc<ClientConfig> {
    let ca = cluster.members.fleet.client_authority().certificate_pem();
    muster_pki::tls::agent(ca, &issued.certificate, &issued.key).unwrap()
}

fn stranger(cluster: &Cluster) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = cluster.members.fleet.client_authority().certificate_pem();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

pub fn csr() -> bytes::Bytes {
    let key = KeyPair::generate().unwrap();
    CertificateParams::default().serialize_request(&key).unwrap().der().to_vec().into()
}

// === joining ===

#[tokio::test]
async fn a_machine_joins_once_and_is_its_node_from_then_on() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let (machine, token) = (Machine::new(), token(&cluster, None).await);
    let credentials = machine.join(&cluster, "a", &token).await.unwrap();
    assert_eq!(credentials.node(), "a");
    let lasts = credentials.expires().duration_since(SystemTime::now()).unwrap();
    assert!(lasts > LIFETIME - HOUR && lasts <= LIFETIME, "{lasts:?}");
    // Any replica accepts it, also after a restart without the token.
    let restarted = NodeCredentials::open_or_join(&machine.store, None, &doors(&cluster), "a").await.unwrap();
    for (id, credentials) in [(1, &credentials), (3, &restarted)] {
        greeted(&cluster, ReplicaId(id), credentials.tls(), "a").await.unwrap();
    }
    let record =
        Arc::clone(cluster.replica(ReplicaId(1)).current().state.join_tokens().get(token.id.as_str()).unwrap());
    assert_eq!(record.used.as_ref().map(|used| &*used.node), Some("a"));
    let wrong = NodeCredentials::open_or_join(&machine.store, None, &doors(&cluster), "b").await.unwrap_err();
    assert!(wrong.to_string().contains("belongs to node \"a\""), "{wrong}");
}

#[tokio::test]
async fn a_join_whose_answer_was_lost_is_answered_again() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (machine, token) = (Machine::new(), token(&cluster, None).await);
    machine.join(&cluster, "a", &token).await.unwrap();
    // As after a crash before the answer was stored: only the key of the join is there.
    let (bundle, joining) = (machine.store.dir().join("node.pem"), machine.store.dir().join("joining.key"));
    let text = std::fs::read_to_string(&bundle).unwrap();
    let (key, _) = text.split_at(text.find("-----BEGIN CERTIFICATE-----").unwrap());
    muster_pki::secret::write_new(&joining, key, muster_pki::secret::Access::Owner).unwrap();
    std::fs::remove_file(&bundle).unwrap();
    let credentials = machine.join(&cluster, "a", &token).await.unwrap();
    greeted(&cluster, ReplicaId(1), credentials.tls(), "a").await.unwrap();
    assert!(!joining.exists());
}

#[tokio::test]
async fn an_invalid_token_is_refused_with_a_reason_and_an_event() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let pin = cluster.members.fleet.client_authority().public_key_print().unwrap();
    let (_first, _) = joined(&cluster, "taken").await;
    let replayed = token(&cluster, None).await;
    Machine::new().join(&cluster, "first", &replayed).await.unwrap();
    let revoked = token(&cluster, None).await;
    cluster.operate(OperatorOperation::RevokeToken { id: revoked.id.as_str().into() }).await;
    let other = token(&cluster, Some("other")).await;
    let open = token(&cluster, None).await;
    let guessed = Token { secret: Token::draw(pin, rand::random).secret, ..open.clone() };
    let unknown = Token::draw(pin, rand::random);
    let expired = token(&cluster, None).await;
    let cases = [
        ("n1", replayed, "was used already, by node \"first\""),
        ("n2", revoked, "was revoked: make a new one"),
        ("n3", other, "is for node \"other\" alone"),
        ("n4", unknown, "is not known here"),
        ("n5", guessed, "the secret of token"),
        ("taken", open.clone(), "node \"taken\" is there already"),
    ];
    for (node, token, wanted) in cases {
        let machine = Machine::new();
        let error = machine.join(&cluster, node, &token).await.unwrap_err();
        assert!(
            matches!(&error, EnrolmentError::Refused { message, .. } if message.contains(wanted)),
            "{node}: {error}"
        );
        assert!(!machine.store.has_credentials());
        until("the refusal is told", || refusals(&cluster, node).iter().any(|told| told.contains(wanted))).await;
    }
    cluster.clock.advance(TTL + HOUR);
    let error = Machine::new().join(&cluster, "n6", &expired).await.unwrap_err();
    assert!(error.to_string().contains("has expired: make a new one"), "{error}");
    until("the refusal is told", || !refusals(&cluster, "n6").is_empty()).await;
    // A caller that tries many tokens learns no secret, and the log does not grow with each.
    assert!(refusals(&cluster, "n5").iter().all(|told| !told.contains(&open.secret)));
}

#[tokio::test]
async fn a_token_of_another_cluster_is_never_sent_to_this_one() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let foreign = Token::draw(Fingerprint([7; 32]), rand::random);
    let error = Machine::new().join(&cluster, "a", &foreign).await.unwrap_err();
    assert!(matches!(error, EnrolmentError::OtherCluster { .. }), "{error}");
    assert!(refusals(&cluster, "a").is_empty(), "nothing was sent");
    // A token that is shown all the same is refused for its own reason.
    let mut client = EnrolmentClient::new(dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap());
    let request = v1::JoinRequest { token: foreign.to_string(), node: "a".to_owned(), csr: csr() };
    let status = client.join(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("another cluster's"), "{status}");
    until("the refusal is told", || !refusals(&cluster, "a").is_empty()).await;
}

#[tokio::test]
async fn a_machine_that_reaches_another_cluster_first_joins_at_the_next_endpoint() {
    let (other, cluster) = (Cluster::start(&[ReplicaId(1)]).await, Cluster::start(&[ReplicaId(1)]).await);
    let (machine, token) = (Machine::new(), token(&cluster, None).await);
    let doors = [doors(&other), doors(&cluster)].concat();
    enrolment::join(&token, &doors, "a", &machine.store).await.unwrap();
}

#[tokio::test]
async fn repeated_refusals_are_rate_limited_in_log_and_events() {
    let lines = Lines::default();
    let _listening = lines.listen();
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let unknown = Token::draw(cluster.members.fleet.client_authority().public_key_print().unwrap(), rand::random);
    let channel = dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap();
    let (mut client, mut agents) = (EnrolmentClient::new(channel.clone()), AgentClient::new(channel));
    for _ in 0..50 {
        let request = v1::JoinRequest { token: unknown.to_string(), node: "a".to_owned(), csr: csr() };
        assert_eq!(client.join(request).await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(agents.who_is(v1::WhoIsRequest {}).await.unwrap_err().code(), Code::Unauthenticated);
    }
    until("some are told", || refusals(&cluster, "a").len() >= 10).await;
    assert!(refusals(&cluster, "a").len() <= 20, "{}", refusals(&cluster, "a").len());
    for what in ["enrolment denied", "denied: not authenticated"] {
        assert!((1..=20).contains(&lines.with(what)), "{what}: {}", lines.with(what));
    }
}

/// The log of this thread, and so of this test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn with(&self, what: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().filter(|line| line.contains(what)).count()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_unreadable_request_is_an_invalid_argument() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let token = token(&cluster, None).await.to_string();
    let mut client = EnrolmentClient::new(dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap());
    let request = |token: &str, node: &str, csr| v1::JoinRequest { token: token.into(), node: node.into(), csr };
    let cases = [
        (request("abc", "a", csr()), "token: a token has three parts"),
        (request(&token, "Not_a_name", csr()), "node: \"Not_a_name\" is not a DNS-1123 subdomain"),
        (request(&token, &"x".repeat(64), csr()), "has a label of 64 characters: between two dots at most 63"),
        (request(&token, &format!("{}x", longest_name()), csr()), "has 254 characters: at most 253"),
        (request(&token, "a", vec![1, 2, 3].into()), "csr: is not a PKCS#10 request"),
    ];
    for (request, wanted) in cases {
        let status = client.join(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(wanted), "{status}");
    }
}

#[tokio::test]
async fn a_replica_without_the_signing_key_says_which_file_it_lacks() {
    let forget = |fleet: &muster_pki::FleetFolder| {
        std::fs::remove_file(fleet.replica_dir(ReplicaId(1)).join("tls/client-ca.key")).unwrap();
    };
    let cluster = Cluster::start_after(&[1, 2, 3].map(ReplicaId), forget).await;
    let token = token(&cluster, None).await;
    let mut client = EnrolmentClient::new(dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap());
    let request = v1::JoinRequest { token: token.to_string(), node: "a".to_owned(), csr: csr() };
    let status = client.join(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("client-ca.key"), "{status}");
    // The agent asks the next replica.
    Machine::new().join(&cluster, "a", &token).await.unwrap();
}

// === admission to a session ===

#[tokio::test]
async fn a_revoked_or_replaced_certificate_gets_no_session() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (ca, peers) = (cluster.members.fleet.client_authority(), cluster.members.fleet.peer_authority());
    let (now, node) = (SystemTime::now(), ("system:node:a", identity::NODES));
    let good = |user| issue(&cluster, ca, (user, identity::NODES), now + HOUR);
    let (_machine, replaced) = joined(&cluster, "replaced").await;
    let (_successor, _) = joined(&cluster, "replaced").await;
    let (_revoked, revoked) = joined(&cluster, "revoked").await;
    revoke(&cluster, "revoked").await;
    revoke(&cluster, "by-hand").await;
    let of = |issued: &Issued| client(&cluster, issued);
    let foreign = issue(&cluster, peers, node, now + HOUR);
    let long_expired = issue(&cluster, ca, node, now - RENEWAL_GRACE - HOUR);
    let expired = issue(&cluster, ca, node, now - HOUR);
    let peer = issue(&cluster, peers, ("system:muster:replica:1", identity::REPLICAS), now + HOUR);
    let replica = issue(&cluster, ca, ("system:muster:replica:1", identity::REPLICAS), now + HOUR);
    let hash = CertifiedName::of(&longest_name()).common_name;
    let nameless = issue(&cluster, ca, (&hash, identity::NODES), now + HOUR);
    let cases = [
        ("none", stranger(&cluster), "a", Some(Code::Unauthenticated), "join with a token first"),
        ("wrong CA", of(&foreign), "a", None, "wrong CA: the certificate was not signed by the CA of this door"),
        ("expired", of(&expired), "a", Some(Code::Unauthenticated), "the certificate has expired: renew it first"),
        ("expired for long", of(&long_expired), "a", None, "too long to renew it; join again with a new token"),
        ("revoked", revoked.tls(), "revoked", Some(Code::PermissionDenied), "was revoked by ada"),
        ("revoked by name", of(&good("system:node:by-hand")), "by-hand", Some(Code::PermissionDenied), "was revoked"),
        ("replayed", replaced.tls(), "replaced", Some(Code::PermissionDenied), "was replaced by another"),
        ("other node's", of(&good("system:node:b")), "a", Some(Code::PermissionDenied), "it cannot speak for node"),
        ("peer's", of(&peer), "a", None, "wrong CA: the certificate was not signed by the CA of this door"),
        ("peer's of our CA", of(&replica), "a", None, "wrong role: a replica"),
        ("without its long name", of(&nameless), "a", None, "have one signed with the node as its DNS name"),
    ];
    for (what, tls, node, code, wanted) in cases {
        let refused = greeted(&cluster, ReplicaId(1), Arc::clone(&tls), node).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{what}: got in"));
        // A caller that is turned away at the door learns nothing; only the door knows the reason.
        let why = match code {
            Some(code) => {
                assert_eq!(refused.code(), code, "{what}: {refused}");
                refused.message().to_owned()
            }
            None => turned_away(&cluster, tls).await,
        };
        assert!(why.contains(wanted), "{what}: {why}");
    }
    assert!(cluster.replica(ReplicaId(1)).current().state.nodes().is_empty(), "and nothing was registered");
    greeted(&cluster, ReplicaId(1), of(&good("system:node:a")), "a").await.unwrap();
}

/// Why the agents' door of replica 1 turns a caller away.
async fn turned_away(cluster: &Cluster, tls: Arc<ClientConfig>) -> String {
    let door =
        Door::new(DoorKind::Agent, cluster.members.tls(ReplicaId(1)).agent_server, cluster.members.fleet.id().clone());
    let door = door.renewing_within(RENEWAL_GRACE);
    let (near, far) = tokio::io::duplex(1 << 16);
    let name = cluster.plan(ReplicaId(1)).agent.host().to_owned().try_into().unwrap();
    let caller = TlsConnector::from(tls).connect(name, near);
    let (_, admitted) = tokio::join!(caller, door.admit(Box::new(far), "127.0.0.1:1".parse().unwrap()));
    admitted.expect_err("it is turned away").to_string()
}

#[tokio::test]
async fn a_caller_without_a_certificate_is_refused_before_its_request_is_read() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    for path in ["/muster.v1.Agent/WhoIs", "/muster.v1.Agent/Session", "/muster.v1.Agent/Carry"] {
        let mut client = tonic::client::Grpc::new(dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap());
        client.ready().await.unwrap();
        let codec = ProstCodec::<v1::WhoIsRequest, v1::WhoIsResponse>::default();
        let silent = Request::new(futures::stream::pending::<v1::WhoIsRequest>());
        let answer = client.streaming(silent, PathAndQuery::from_static(path), codec);
        let status = timeout(PATIENCE, answer).await.expect("an answer").unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{path}: {status}");
    }
}

/// A connection without a certificate from this address, on which nothing is ever said.
async fn loiterer(cluster: &Cluster, from: &str) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    let tcp = socket.connect(cluster.plan(ReplicaId(1)).agent.listen()).await.unwrap();
    let name = cluster.plan(ReplicaId(1)).agent.host().to_owned().try_into().unwrap();
    TlsConnector::from(stranger(cluster)).connect(name, tcp).await.unwrap()
}

#[tokio::test]
async fn many_connections_without_certificates_do_not_prevent_a_join() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let token = token(&cluster, None).await;
    let mut crowd = Vec::new();
    // More callers than there are places.
    while crowd.len() < 300 {
        crowd.push(loiterer(&cluster, "127.99.0.1:0").await);
    }
    let machine = Machine::new();
    let joined = timeout(JOIN_PATIENCE, machine.join(&cluster, "a", &token)).await;
    joined.expect("it does not have to wait until they have gone").unwrap();
    // Callers that have a place are greeted; the others find the connection closed.
    let mut greeted = 0;
    for one in &mut crowd {
        let heard = timeout(PATIENCE, one.read(&mut [0])).await.expect("a greeting or an end");
        greeted += heard.unwrap_or_default();
    }
    assert!((1..=64).contains(&greeted), "{greeted} have a place");
}

#[tokio::test]
async fn a_caller_without_a_certificate_may_only_join_and_an_expired_one_only_renew() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let expired = issue(
        &cluster,
        cluster.members.fleet.client_authority(),
        ("system:node:a", identity::NODES),
        SystemTime::now() - HOUR,
    );
    for tls in [stranger(&cluster), client(&cluster, &expired)] {
        let channel = dial_with(&cluster, ReplicaId(1), tls).await.unwrap();
        let mut agents = AgentClient::new(channel);
        let status = agents.who_is(v1::WhoIsRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        let status = agents.carry(futures::stream::empty()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    let mut client_of = EnrolmentClient::new(dial_with(&cluster, ReplicaId(1), stranger(&cluster)).await.unwrap());
    assert_eq!(client_of.renew(v1::RenewRequest { csr: csr() }).await.unwrap_err().code(), Code::Unauthenticated);
    let mut client_of =
        EnrolmentClient::new(dial_with(&cluster, ReplicaId(1), client(&cluster, &expired)).await.unwrap());
    let token = token(&cluster, None).await.to_string();
    let request = v1::JoinRequest { token, node: "a".to_owned(), csr: csr() };
    assert_eq!(client_of.join(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_open_stream_ends_with_its_certificate() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let node = ("system:node:a", identity::NODES);
    let short =
        issue(&cluster, cluster.members.fleet.client_authority(), node, SystemTime::now() + Duration::from_secs(4));
    let tls = client(&cluster, &short);
    let channel = dial_with(&cluster, ReplicaId(1), Arc::clone(&tls)).await.unwrap();
    let mut session = greeted(&cluster, ReplicaId(1), tls, "a").await.unwrap();
    session.say(Up::Beat(v1::Beat { sequence: 1, acknowledge: true }));
    let refused = loop {
        match session.try_hear().await {
            Ok(Some(Down::Acknowledged(v1::Acknowledged { sequence }))) => {
                session.say(Up::Beat(v1::Beat { sequence: sequence + 1, acknowledge: true }));
            }
            Ok(heard) => assert!(heard.is_some(), "it ended without a reason"),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("the certificate has expired: renew it first"), "{refused}");
    // An open connection does not get round that: it is good only for renewing, as a new connection would be.
    let mut agents = v1::agent_client::AgentClient::new(channel.clone());
    assert_eq!(agents.who_is(v1::WhoIsRequest {}).await.unwrap_err().code(), Code::Unauthenticated);
    EnrolmentClient::new(channel).renew(v1::RenewRequest { csr: csr() }).await.unwrap();
    let current = cluster.replica(ReplicaId(1)).current();
    assert!(current.state.events().iter().any(|event| event.reason() == "ExpiredCertificateRenewed"));
}

// === renewing ===

#[tokio::test]
async fn a_renewal_keeps_the_session_and_ends_the_old_key_once_the_new_one_is_used() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    for node in ["a", &longest_name()] {
        renewal_leaves_the_session_alone(&cluster, node).await;
    }
}

async fn renewal_leaves_the_session_alone(cluster: &Cluster, node: &str) {
    let (machine, credentials) = joined(cluster, node).await;
    let old = NodeCredentials::load(&machine.store).unwrap();
    let mut session = greeted(cluster, ReplicaId(1), credentials.tls(), node).await.unwrap();
    enrolment::renew(&credentials, &doors(cluster)).await.unwrap();
    session.report(1, &crate::agent::status_json(1));
    session.status_taken().await;
    // Until the new certificate was used the old one is good: the answer might have been lost.
    greeted(cluster, ReplicaId(2), old.tls(), node).await.unwrap();
    greeted(cluster, ReplicaId(3), credentials.tls(), node).await.unwrap();
    let confirmed = || {
        let current = cluster.replica(ReplicaId(2)).current();
        current.state.credentials().get(node).is_some_and(|known| known.previous.is_none())
    };
    until("the new key was used", confirmed).await;
    let refused = greeted(cluster, ReplicaId(2), old.tls(), node).await.err().unwrap();
    assert!(refused.message().contains("was replaced by another"), "{refused}");
    let renewed = NodeCredentials::load(&machine.store).unwrap();
    greeted(cluster, ReplicaId(1), renewed.tls(), node).await.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_renewed_and_recorded_as_an_event() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let node = ("system:node:a", identity::NODES);
    let expired =
        issue(&cluster, cluster.members.fleet.client_authority(), node, SystemTime::now() - RENEWAL_GRACE + HOUR);
    let machine = Machine::new();
    std::fs::create_dir_all(machine.store.dir()).unwrap();
    let file = |name: &str, text: &str| {
        let path = machine.store.dir().join(name);
        muster_pki::secret::write_new(&path, text, muster_pki::secret::Access::Owner).unwrap();
    };
    file("ca.crt", cluster.members.fleet.client_authority().certificate_pem());
    file("node.pem", &format!("{}{}", expired.key, expired.certificate));
    let credentials = NodeCredentials::open_or_join(&machine.store, None, &doors(&cluster), "a").await.unwrap();
    assert!(!credentials.is_expired(SystemTime::now()), "it was renewed first");
    greeted(&cluster, ReplicaId(1), credentials.tls(), "a").await.unwrap();
    let current = cluster.replica(ReplicaId(1)).current();
    assert!(current.state.events().iter().any(|event| event.reason() == "ExpiredCertificateRenewed"));
}

#[tokio::test]
async fn a_revoked_node_cannot_renew() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (_machine, credentials) = joined(&cluster, "a").await;
    revoke(&cluster, "a").await;
    let error = enrolment::renew(&credentials, &doors(&cluster)).await.unwrap_err();
    assert!(error.to_string().contains("was revoked by ada"), "{error}");
    until("the refusal is told", || !refusals(&cluster, "a").is_empty()).await;
}

// === revoking ===

#[tokio::test]
async fn a_revocation_ends_the_open_stream_at_any_replica() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    for (id, node) in [(1, "n1".to_owned()), (2, "n2".to_owned()), (3, longest_name())] {
        let id = ReplicaId(id);
        let (_machine, credentials) = joined(&cluster, &node).await;
        let mut session = greeted(&cluster, id, credentials.tls(), &node).await.unwrap();
        let started = std::time::Instant::now();
        revoke(&cluster, &node).await;
        let refused = session.refusal().await;
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("was revoked by ada"), "{refused}");
        let refused = greeted(&cluster, id, credentials.tls(), &node).await.err().unwrap();
        assert!(refused.message().contains("was revoked by ada"), "{refused}");
    }
}

#[tokio::test]
async fn a_revocation_ends_the_stream_of_a_node_that_is_not_registered() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    // A node that has yet to register, and a node whose Node was deleted under it.
    let (_machine, credentials) = joined(&cluster, "new").await;
    let mut new = Agent::on(dial_with(&cluster, ReplicaId(1), credentials.tls()).await.unwrap()).await.unwrap();
    new.say(Up::Hello(hello("new", 1)));
    assert!(matches!(new.hear().await, Down::RegistrationWanted(_)));
    let (_machine, credentials) = joined(&cluster, "deleted").await;
    let mut deleted = greeted(&cluster, ReplicaId(1), credentials.tls(), "deleted").await.unwrap();
    cluster.delete("deleted").await;
    assert!(matches!(deleted.hear().await, Down::Removed(_)));
    for (mut session, node) in [(new, "new"), (deleted, "deleted")] {
        let started = std::time::Instant::now();
        revoke(&cluster, node).await;
        let refused = session.refusal().await;
        assert!(started.elapsed() < Duration::from_secs(10), "{node}: {:?}", started.elapsed());
        assert_eq!(refused.code(), Code::PermissionDenied, "{node}: {refused}");
        assert!(refused.message().contains("was revoked by ada"), "{node}: {refused}");
    }
}

#[tokio::test]
async fn a_machine_that_joins_under_the_name_of_another_ends_its_stream() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let (_machine, credentials) = joined(&cluster, "a").await;
    let mut session = greeted(&cluster, ReplicaId(1), credentials.tls(), "a").await.unwrap();
    let (_successor, successor) = joined(&cluster, "a").await;
    let refused = session.refusal().await;
    assert!(refused.message().contains("was replaced by another"), "{refused}");
    greeted(&cluster, ReplicaId(1), successor.tls(), "a").await.unwrap();
}

#[tokio::test]
async fn an_aggregator_cannot_bind_a_revoked_node() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    cluster.operate(OperatorOperation::SetAggregator { name: "rack".into(), nodes: vec!["*".into()] }).await;
    for name in ["a", "b"] {
        let draft = muster_lifecycle::node::NodeDraft { name: name.into(), ..Default::default() };
        let uid = muster_lifecycle::meta::Uid(rand::random());
        cluster.operate(OperatorOperation::CreateNode { draft: Box::new(draft), uid }).await;
    }
    revoke(&cluster, "b").await;
    let mut aggregator = Aggregator::greet(&cluster, ReplicaId(1), "rack", 1).await;
    aggregator.hear().await;
    aggregator.bind(&[(1, "a"), (2, "b")]);
    let bound = aggregator.all_bound(2).await;
    assert!(bound[0].refused.is_empty() && bound[1].refused.contains("was revoked"), "{bound:?}");
    revoke(&cluster, "a").await;
    let refused = loop {
        if let muster_proto::v1::aggregator_reply::Message::Bound(bound) = aggregator.hear().await {
            break bound;
        }
    };
    assert!(refused.nodes[0].handle == 1 && refused.nodes[0].refused.contains("was revoked"), "{refused:?}");
}
