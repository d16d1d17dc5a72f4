//! Tests of the HTTP door over real TLS: admission, paths, protocols, and the end of connections.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_controller::door::DoorKind;
use muster_controller::door::listener::{Door, Listener, Tcp};
use muster_controller::observe::http::{Check, Sources, serve};
use muster_controller::observe::metrics::raft::RaftFigures;
use muster_controller::observe::metrics::state::StateFigures;
use muster_controller::observe::metrics::zones::ZoneFigures;
use muster_controller::observe::metrics::{CONTENT_TYPE, Figures, Metrics};
use muster_lifecycle::replica::ReplicaId;
use muster_pki::secret::{self, Access};
use muster_pki::tls::{self, Credentials, ReplicaTls};
use muster_pki::{CertificateSubject, ClientConfig, FleetFolder, Grant, ReplicaPlan, Usage, Validity, identity};
use muster_raft::connector::Io;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http;

const PATIENCE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";
/// The leader's id while the replica knows no leader.
const NO_LEADER: u64 = 0;

#[tokio::test]
async fn a_viewer_reads_the_metrics_in_either_protocol() {
    let rig = Rig::new();
    rig.metrics.raft.leader_changes.inc_by(41);
    for protocol in [HTTP_1_1, H2] {
        let answer = rig.ask(protocol, "GET", "/metrics").await;
        assert_eq!((answer.status, answer.headers["content-type"].as_str()), (200, CONTENT_TYPE));
        let lines: Vec<&str> = answer.body.lines().collect();
        for line in [
            "# TYPE node_collector_zone_health gauge",
            r#"node_collector_zone_health{zone="eu/a"} 50.0"#,
            r#"node_collector_evictions_total{zone="eu/a"} 9.0"#,
            "muster_raft_leader_changes_total 41",
            "muster_nodes 4.0",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{}", answer.body);
        }
        assert_eq!(lines.last(), Some(&"# EOF"));
    }
}

#[tokio::test]
async fn an_operator_may_read_health_too() {
    let rig = Rig::new();
    let operator = ClientConfig::load(&rig.fleet.operator_dir().join("client.toml")).unwrap();
    let stream = rig.dial(tls::operator(&operator.tls).unwrap(), H2).await.unwrap();
    assert_eq!(exchange(stream, H2, "GET", "/livez").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_caller_without_a_certificate_gets_no_answer() {
    let rig = Rig::new();
    let mut roots = rustls::RootCertStore::empty();
    let ca = rig.fleet.client_authority().certificate_pem();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let anonymous = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    rig.expect_refusal(Arc::new(anonymous)).await;
}

#[tokio::test]
async fn machines_get_no_answer() {
    let rig = Rig::new();
    for (user, group) in [("system:node:rack-1", identity::NODES), ("system:muster:replica:2", identity::REPLICAS)] {
        rig.expect_refusal(rig.machine(user, group)).await;
    }
}

#[tokio::test]
async fn an_unknown_path_is_answered_with_the_known_ones() {
    let rig = Rig::new();
    for protocol in [HTTP_1_1, H2] {
        for path in ["/", "/metrics/", "/api/v1/nodes"] {
            let answer = rig.ask(protocol, "GET", path).await;
            assert_eq!(answer.status, 404, "{path}");
            for part in [path, "/metrics", "/livez", "/readyz"] {
                assert!(answer.body.contains(part), "{part}: {}", answer.body);
            }
        }
    }
}

#[tokio::test]
async fn nothing_but_get_is_served() {
    let rig = Rig::new();
    for path in ["/metrics", "/nowhere"] {
        for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"] {
            let answer = rig.ask(HTTP_1_1, method, path).await;
            assert_eq!((answer.status, answer.headers["allow"].as_str()), (405, "GET"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_replica_is_ready_while_it_knows_a_leader() {
    let rig = Rig::new();
    let leader = |id| rig.leader.store(id, Ordering::Relaxed);
    for protocol in [HTTP_1_1, H2] {
        leader(2);
        let ready = rig.ask(protocol, "GET", "/readyz").await;
        assert_eq!((ready.status, ready.body.as_str()), (200, "ok\n"));
        leader(NO_LEADER);
        let unready = rig.ask(protocol, "GET", "/readyz").await;
        assert_eq!(unready.status, 503);
        assert!(unready.body.contains("no leader is known"), "{}", unready.body);
        assert_eq!(rig.ask(protocol, "GET", "/livez").await.status, 200, "not being ready is no reason to be killed");
        leader(3);
        let detailed = rig.ask(protocol, "GET", "/readyz?verbose").await;
        assert_eq!((detailed.status, detailed.body.as_str()), (200, "[+]leader ok\nreadyz check passed\n"));
    }
}

#[tokio::test]
async fn headers_beyond_the_limit_are_refused() {
    let rig = Rig::new();
    for (length, status) in [(4 * 1024, "200"), (12 * 1024, "431")] {
        let mut stream = rig.dial(rig.viewer(), HTTP_1_1).await.unwrap();
        let long = "a".repeat(length);
        let request = format!("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: {long}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_serves_many_requests_and_ends_when_the_door_closes() {
    let mut rig = Rig::new();
    let stream = rig.dial(rig.viewer(), H2).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        assert_eq!(ask_h2(&mut sender, "GET", "/livez").await.unwrap().status, 200);
    }
    rig.closing.cancel();
    timeout(PATIENCE, &mut rig.serving).await.unwrap().unwrap();
    timeout(PATIENCE, connection).await.unwrap().unwrap().unwrap();
    assert!(ask_h2(&mut sender, "GET", "/livez").await.is_err());
    assert!(TcpStream::connect(rig.address).await.is_err(), "the door is closed");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed() {
    for (protocol, kept_for) in [(HTTP_1_1, Duration::from_secs(90)), (H2, HOUR + Duration::from_secs(10))] {
        let (outside, inside) = tokio::io::duplex(64 * 1024);
        let rig = Rig::behind(|_| Once(Some(inside)));
        let mut stream = handshake(rig.viewer(), protocol, outside).await.unwrap();
        let started = Instant::now();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        let kept = started.elapsed();
        assert!(kept >= kept_for && kept < kept_for + Duration::from_secs(1), "{kept:?}");
    }
}

// === helpers ===

/// Replica 1 of a fleet with its HTTP door open.
struct Rig {
    dir: TempDir,
    fleet: FleetFolder,
    address: SocketAddr,
    metrics: Arc<Metrics>,
    /// The leader, as far as the replica knows.
    leader: Arc<AtomicU64>,
    closing: CancellationToken,
    serving: JoinHandle<()>,
}

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

// === impl Rig ===

impl Rig {
    fn new() -> Self {
        Self::behind(|address| {
            let tcp = Tcp::bind(DoorKind::Http, "127.0.0.1:0".parse().unwrap()).unwrap();
            *address = tcp.local_addr().unwrap();
            tcp
        })
    }

    fn behind<L: Listener>(listener: impl FnOnce(&mut SocketAddr) -> L) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fleet = FleetFolder::create(dir.path(), &[plan()]).unwrap();
        fleet.issue_client(&dir.path().join("grace"), "grace", Grant::Viewer, HOUR).unwrap();
        let mut address = "127.0.0.1:0".parse().unwrap();
        let listener = listener(&mut address);
        let server = ReplicaTls::load(&fleet.replica_dir(ReplicaId(1)).join("tls")).unwrap().server;
        let incoming = Door::new(DoorKind::Http, server, fleet.id().clone()).open(listener);
        let (metrics, leader) = (Arc::new(Metrics::default()), Arc::new(AtomicU64::new(2)));
        let closing = CancellationToken::new();
        let serving = tokio::spawn(serve(incoming, sources(&metrics, &leader), closing.clone()));
        Self { dir, fleet, address, metrics, leader, closing, serving }
    }

    fn viewer(&self) -> Arc<rustls::ClientConfig> {
        let config = ClientConfig::load(&self.dir.path().join("grace/client.toml")).unwrap();
        tls::operator(&config.tls).unwrap()
    }

    fn machine(&self, user: &str, group: &str) -> Arc<rustls::ClientConfig> {
        let validity = Validity::starting(SystemTime::now(), HOUR);
        let (fleet, usage) = (self.fleet.id(), Usage::Client);
        let authority = self.fleet.client_authority();
        let issued = authority
            .issue(&CertificateSubject { user, group: Some(group), fleet, usage, hosts: &[], validity })
            .unwrap();
        let [ca, certificate, key] = ["ca.crt", "it.crt", "it.key"].map(|name| self.dir.path().join(name));
        let write = |path: &Path, text: &str| secret::replace(path, text, Access::Owner).unwrap();
        write(&ca, authority.certificate_pem());
        write(&certificate, &issued.certificate);
        write(&key, &issued.key);
        Credentials::load(&ca, &certificate, &key).unwrap().client().unwrap()
    }

    async fn dial(&self, client: Arc<rustls::ClientConfig>, protocol: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        handshake(client, protocol, tcp).await
    }

    /// A viewer's request on a connection of its own.
    async fn ask(&self, protocol: &[u8], method: &str, path: &str) -> Answer {
        let stream = self.dial(self.viewer(), protocol).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        exchange(stream, protocol, method, path).await.unwrap()
    }

    /// In TLS 1.3 a client is done before the server has checked its certificate, so the refusal shows at the first
    /// answer.
    async fn expect_refusal(&self, client: Arc<rustls::ClientConfig>) {
        for protocol in [HTTP_1_1, H2] {
            let answered = match self.dial(Arc::clone(&client), protocol).await {
                Ok(stream) => exchange(stream, protocol, "GET", "/metrics").await,
                Err(error) => Err(error),
            };
            assert!(answered.is_err(), "was answered with {}", answered.unwrap().status);
        }
    }
}

fn plan() -> ReplicaPlan {
    let address = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
    ReplicaPlan { id: ReplicaId(1), hosts: vec![], peer: address(7400), agent: address(7401), client: address(7402) }
}

fn sources(metrics: &Arc<Metrics>, leader: &Arc<AtomicU64>) -> Sources {
    let zone = ZoneFigures {
        zone: "eu/a".into(),
        size: 4,
        ready: 2,
        state: "Normal",
        rate_per_second: 0.1,
        queue: 1,
        evictions: 9,
    };
    let state = StateFigures { nodes: 4, nodes_ready: 2, revision: 7, cluster_time: HOUR };
    let figures = Figures {
        zones: Arc::new(move || vec![zone.clone()]),
        digests: Arc::new(Vec::new),
        raft: Arc::new(RaftFigures::default),
        state: Arc::new(move || state),
        work: Arc::new(Default::default),
        sessions: Arc::default(),
    };
    let leader = Arc::clone(leader);
    let known = move || Some(leader.load(Ordering::Relaxed)).filter(|id| *id != NO_LEADER);
    Sources {
        metrics: Arc::clone(metrics),
        figures,
        checks: Arc::new(move || vec![Check::leader(known().map(ReplicaId))]),
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    client: Arc<rustls::ClientConfig>,
    protocol: &[u8],
    io: S,
) -> io::Result<TlsStream<S>> {
    let mut client = rustls::ClientConfig::clone(&client);
    client.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(client)).connect("127.0.0.1".try_into().unwrap(), io).await
}

async fn exchange(stream: TlsStream<TcpStream>, protocol: &[u8], method: &str, path: &str) -> io::Result<Answer> {
    let asked = async {
        if protocol != H2 {
            return ask_http1(stream, method, path).await;
        }
        let (mut sender, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let answer = ask_h2(&mut sender, method, path).await;
        connection.abort();
        answer
    };
    timeout(PATIENCE, asked).await.unwrap()
}

async fn ask_http1(mut stream: TlsStream<TcpStream>, method: &str, path: &str) -> io::Result<Answer> {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: replica\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (first, headers) = head.split_once("\r\n").unwrap();
    let headers = headers.lines().map(|line| line.split_once(": ").unwrap());
    Ok(Answer {
        status: first.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: body.to_owned(),
    })
}

async fn ask_h2(sender: &mut h2::client::SendRequest<bytes::Bytes>, method: &str, path: &str) -> io::Result<Answer> {
    futures::future::poll_fn(|cx| sender.poll_ready(cx)).await.map_err(io::Error::other)?;
    let request = http::Request::builder().method(method).uri(format!("https://replica{path}")).body(()).unwrap();
    let (response, _) = sender.send_request(request, true).map_err(io::Error::other)?;
    let response = response.await.map_err(io::Error::other)?;
    let headers = response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let (status, headers) = (response.status().as_u16(), headers.collect());
    let (mut incoming, mut body) = (response.into_body(), Vec::new());
    while let Some(chunk) = incoming.data().await {
        let chunk = chunk.map_err(io::Error::other)?;
        incoming.flow_control().release_capacity(chunk.len()).map_err(io::Error::other)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, headers, body: String::from_utf8(body).unwrap() })
}

/// A listener with one connection.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        match self.0.take() {
            Some(io) => {
                let accepted: (Box<dyn Io>, _) = (Box::new(io), "127.0.0.1:1".parse().unwrap());
                std::future::ready(Ok(accepted)).boxed()
            }
            None => std::future::pending().boxed(),
        }
    }
}
