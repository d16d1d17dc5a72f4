//! Tests of the doors with real certificates over real loopback connections: admission, refusal, and its reason.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use hyper_util::rt::TokioIo;
use muster_client::connect;
use muster_controller::door::connector::TlsConnector;
use muster_controller::door::listener::{
    BindError, Connection, Door, DoorRefusal, HANDSHAKE_TIMEOUT, Listener, Peer, Tcp,
};
use muster_controller::door::{DoorKind, Limits, door_limits};
use muster_lifecycle::replica::ReplicaId;
use muster_pki::identity::{self, Role};
use muster_pki::tls::{Credentials, ReplicaTls};
use muster_pki::{Authority, CertificateSubject, FleetFolder, FleetId, HostPort, ReplicaPlan, Usage, Validity};
use muster_raft::connector::{Connector, Io};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Endpoint, Server};

const ANY: &str = "127.0.0.1:0";
const HOUR: Duration = Duration::from_secs(3600);
/// How long after its expiry a node's certificate may be renewed.
const GRACE: Duration = Duration::from_secs(2 * 3600);

#[tokio::test]
async fn the_right_certificate_is_admitted_with_its_identity() {
    let rig = Rig::new();
    let cases = [
        (DoorKind::Peer, identity::REPLICAS, "system:muster:replica:2", Role::Replica(ReplicaId(2))),
        (DoorKind::Agent, identity::NODES, "system:node:rack-1", Role::Node("rack-1".into())),
        (DoorKind::Agent, identity::AGGREGATORS, "system:muster:aggregator:a", Role::Aggregator("a".into())),
        (DoorKind::Agent, identity::CANARIES, "system:muster:canary:1", Role::Canary(ReplicaId(1))),
        (DoorKind::Client, identity::OPERATORS, "ada", Role::Operator),
        (DoorKind::Client, identity::VIEWERS, "grace", Role::Viewer),
        (DoorKind::Http, identity::OPERATORS, "ada", Role::Operator),
        (DoorKind::Http, identity::VIEWERS, "grace", Role::Viewer),
    ];
    for (kind, group, user, role) in cases {
        let client = rig.client(kind, &rig.subject(user, group));
        let connection = rig.knock(kind, client).await.unwrap();
        let identity = &connection.peer().identity;
        assert_eq!((identity.user.as_str(), &identity.kind, &identity.fleet), (user, &role, rig.fleet.id()));
        assert_eq!(identity.groups, [group]);
    }
}

#[tokio::test]
async fn a_certificate_of_the_other_ca_is_refused() {
    let rig = Rig::new();
    for (door, signer) in
        [(DoorKind::Peer, DoorKind::Client), (DoorKind::Client, DoorKind::Peer), (DoorKind::Agent, DoorKind::Peer)]
    {
        let subject = rig.subject("system:muster:replica:2", identity::REPLICAS);
        let client = rig.client_of(rig.authority(signer), rig.authority(door), &subject);
        let refusal = rig.knock(door, client).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::WrongAuthority), "{door}: {refusal}");
        assert!(refusal.to_string().contains("wrong CA"));
    }
}

#[tokio::test]
async fn a_connection_without_a_certificate_is_refused() {
    let rig = Rig::new();
    for door in [DoorKind::Peer, DoorKind::Client, DoorKind::Http] {
        let refusal = rig.knock(door, rig.stranger(door)).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::NoCertificate), "{door}: {refusal}");
    }
}

#[tokio::test]
async fn a_connection_without_a_certificate_at_the_agents_door_is_a_stranger_and_times_out() {
    let rig = Rig::new();
    let (mut incoming, address) = rig.open(DoorKind::Agent);
    let address: HostPort = address.parse().unwrap();
    let _stream = connected(connect(rig.stranger(DoorKind::Agent), &address)).await.unwrap();
    let mut connection = incoming.next().await.unwrap().unwrap();
    assert_eq!(connection.peer().identity.kind, Role::Stranger);
    tokio::time::pause();
    let error = connection.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn a_stranger_that_does_not_read_times_out() {
    let rig = Rig::new();
    let (mut incoming, address) = rig.open(DoorKind::Agent);
    let address: HostPort = address.parse().unwrap();
    let _deaf = connected(connect(rig.stranger(DoorKind::Agent), &address)).await.unwrap();
    let mut connection = incoming.next().await.unwrap().unwrap();
    tokio::time::pause();
    let words = vec![0; 1 << 20];
    let error = loop {
        if let Err(error) = connection.write_all(&words).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    let error = connection.flush().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn an_expired_certificate_admits_only_a_node_and_only_within_the_renewal_time() {
    let rig = Rig::new();
    let now = SystemTime::now();
    let expired = |user: &'static str, group: &'static str, ago: Duration| {
        let validity = Validity { from: now - 10 * HOUR, until: now - ago };
        rig.client(DoorKind::Agent, &CertificateSubject { validity, ..rig.subject(user, group) })
    };
    let minute = Duration::from_secs(60);
    let client = expired("system:node:a", identity::NODES, GRACE - minute);
    let connection = rig.knock(DoorKind::Agent, client).await.unwrap();
    assert_eq!(connection.peer().identity.kind, Role::Lapsed("a".into()));

    let client = expired("system:node:a", identity::NODES, GRACE + minute);
    let refusal = rig.knock(DoorKind::Agent, client).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::Lapsed { .. }), "{refusal}");
    assert!(refusal.to_string().contains("join again with a new token"), "{refusal}");

    for (user, group) in
        [("system:muster:aggregator:a", identity::AGGREGATORS), ("system:muster:canary:1", identity::CANARIES)]
    {
        let refusal = rig.knock(DoorKind::Agent, expired(user, group, minute)).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::Expired), "{user}: {refusal}");
    }
    // The renewal grace excuses neither a wrong CA nor a validity that begins in the future.
    let validity = Validity { from: now - 10 * HOUR, until: now - minute };
    let subject = CertificateSubject { validity, ..rig.subject("system:node:a", identity::NODES) };
    let foreign = rig.client_of(rig.authority(DoorKind::Peer), rig.authority(DoorKind::Agent), &subject);
    let refusal = rig.knock(DoorKind::Agent, foreign).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::WrongAuthority), "{refusal}");
    let validity = Validity { from: now + HOUR, until: now + 2 * HOUR };
    let early = rig.client(DoorKind::Agent, &CertificateSubject { validity, ..subject });
    let refusal = rig.knock(DoorKind::Agent, early).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::Expired), "{refusal}");
}

#[tokio::test]
async fn an_expired_or_future_certificate_is_refused() {
    let rig = Rig::new();
    let now = SystemTime::now();
    for (from, until) in [(now - 3 * HOUR, now - HOUR), (now + HOUR, now + 3 * HOUR)] {
        let subject =
            CertificateSubject { validity: Validity { from, until }, ..rig.subject("ada", identity::OPERATORS) };
        let refusal = rig.knock(DoorKind::Client, rig.client(DoorKind::Client, &subject)).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::Expired), "{refusal}");
    }
}

#[tokio::test]
async fn a_server_certificate_is_refused_at_every_door() {
    let rig = Rig::new();
    for door in [DoorKind::Peer, DoorKind::Agent, DoorKind::Client, DoorKind::Http] {
        let subject =
            CertificateSubject { usage: Usage::Server, ..rig.subject("system:muster:replica:2", identity::REPLICAS) };
        let refusal = rig.knock(door, rig.client(door, &subject)).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::WrongUsage), "{door}: {refusal}");
    }
}

#[tokio::test]
async fn another_fleet_is_refused() {
    let rig = Rig::new();
    let other = FleetId::random();
    let subject = CertificateSubject { fleet: &other, ..rig.subject("ada", identity::OPERATORS) };
    let refusal = rig.knock(DoorKind::Client, rig.client(DoorKind::Client, &subject)).await.unwrap_err();
    assert!(matches!(&refusal, DoorRefusal::WrongFleet { theirs, .. } if *theirs == other), "{refusal}");

    let stranger = Rig::new();
    let subject = stranger.subject("system:muster:replica:2", identity::REPLICAS);
    let client = rig.client_of(stranger.authority(DoorKind::Peer), rig.authority(DoorKind::Peer), &subject);
    let refusal = rig.knock(DoorKind::Peer, client).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::WrongAuthority), "{refusal}");
}

#[tokio::test]
async fn a_role_at_the_wrong_door_is_refused() {
    let rig = Rig::new();
    for (door, group, user) in [
        (DoorKind::Client, identity::NODES, "system:node:rack-1"),
        (DoorKind::Client, identity::REPLICAS, "system:muster:replica:2"),
        (DoorKind::Http, identity::NODES, "system:node:rack-1"),
        (DoorKind::Http, identity::AGGREGATORS, "system:muster:aggregator:a"),
        (DoorKind::Agent, identity::OPERATORS, "ada"),
        (DoorKind::Peer, identity::OPERATORS, "ada"),
    ] {
        let client = rig.client(door, &rig.subject(user, group));
        let refusal = rig.knock(door, client).await.unwrap_err();
        assert!(matches!(refusal, DoorRefusal::WrongRole { .. }), "{door}: {refusal}");
    }
}

#[tokio::test]
async fn a_user_without_a_role_is_refused() {
    let rig = Rig::new();
    let client = rig.client(DoorKind::Client, &rig.subject("system:node:a", "system:masters"));
    let refusal = rig.knock(DoorKind::Client, client).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::NoIdentity(_)), "{refusal}");
}

#[tokio::test]
async fn tls_1_2_is_not_spoken() {
    let rig = Rig::new();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let refusal = rig.knock(DoorKind::Client, Arc::new(client)).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::Handshake(_)), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_handshake_is_dropped() {
    let rig = Rig::new();
    let (mut stalled, io) = tokio::io::duplex(1024);
    let started = tokio::time::Instant::now();
    let refusal = rig.door(DoorKind::Agent).admit(Box::new(io), ANY.parse().unwrap()).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::Stalled), "{refusal}");
    assert_eq!(started.elapsed(), HANDSHAKE_TIMEOUT);
    assert_eq!(stalled.read(&mut [0; 16]).await.unwrap(), 0, "the connection is closed");
}

#[tokio::test]
async fn a_connection_without_tls_is_refused() {
    let rig = Rig::new();
    let (mut stranger, io) = tokio::io::duplex(1024);
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let refusal = rig.door(DoorKind::Client).admit(Box::new(io), ANY.parse().unwrap()).await.unwrap_err();
    assert!(matches!(refusal, DoorRefusal::Handshake(_)), "{refusal}");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_setting() {
    let first = Tcp::bind(DoorKind::Peer, ANY.parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    for (kind, flag, key) in [
        (DoorKind::Peer, "--listen-peer", "`listen.peer`"),
        (DoorKind::Agent, "--listen-agent", "`listen.agent`"),
        (DoorKind::Client, "--listen-client", "`listen.client`"),
        (DoorKind::Http, "--listen-http", "`listen.http`"),
    ] {
        let error = Tcp::bind(kind, address).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }));
        let message = error.to_string();
        for part in [flag, key, &address.to_string(), "in use"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn peers_connect_only_to_the_replica_they_dialled() {
    let rig = Rig::new();
    let (mut incoming, address) = rig.open(DoorKind::Peer);
    let peers = TlsConnector::new(rig.replica_tls().peer_client, rig.fleet.id().clone());
    // The door belongs to replica 1; its address must not pass for that of replica 2.
    let error = connected(peers.connect(ReplicaId(2), &address)).await.err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
    let other = TlsConnector::new(rig.replica_tls().peer_client, FleetId::random());
    assert!(connected(other.connect(ReplicaId(1), &address)).await.is_err());

    let mut stream = connected(peers.connect(ReplicaId(1), &address)).await.unwrap();
    let mut connection = incoming.next().await.unwrap().unwrap();
    assert_eq!(connection.peer().identity.kind, Role::Replica(ReplicaId(1)));
    stream.write_all(b"vote").await.unwrap();
    let mut heard = [0; 4];
    connection.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"vote");
}

#[tokio::test]
async fn an_operator_verifies_the_host_it_dialled() {
    let rig = Rig::new();
    let (_incoming, address) = rig.open(DoorKind::Client);
    let address: HostPort = address.parse().unwrap();
    let tls = || rig.client(DoorKind::Client, &rig.subject("ada", identity::OPERATORS));
    connected(connect(tls(), &address)).await.unwrap();
    // The same replica behind another address of this machine: its certificate names 127.0.0.1 only.
    let elsewhere: HostPort = format!("127.0.0.2:{}", address.port()).parse().unwrap();
    let (_incoming, _) = rig.open_at(DoorKind::Client, elsewhere.to_string().parse().unwrap());
    assert!(connected(connect(tls(), &elsewhere)).await.is_err());
}

#[tokio::test]
async fn a_full_door_admits_the_next_connection_when_one_ends() {
    let rig = Rig::new();
    let tcp = Tcp::bind(DoorKind::Client, ANY.parse().unwrap()).unwrap();
    let address: HostPort = tcp.local_addr().unwrap().to_string().parse().unwrap();
    let limits = Limits { connections: 1, handshakes: 1, ..DoorKind::Client.limits() };
    let mut incoming = rig.door(DoorKind::Client).open_within(tcp, limits);
    let tls = rig.client(DoorKind::Client, &rig.subject("ada", identity::OPERATORS));
    let _first = connected(connect(Arc::clone(&tls), &address)).await.unwrap();
    let admitted = incoming.next().await.unwrap().unwrap();

    let second = tokio::spawn(async move { connect(tls, &address).await });
    // Every task has had its turn many times over; the second one is still outside.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(incoming.next().now_or_never().is_none());
    assert!(!second.is_finished());
    drop(admitted);
    incoming.next().await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_door_reports_queued_handshakes() {
    let rig = Rig::new();
    let tcp = Tcp::bind(DoorKind::Agent, ANY.parse().unwrap()).unwrap();
    let address = tcp.local_addr().unwrap();
    let door = rig.door(DoorKind::Agent);
    let handshakes = door.handshakes();
    let _incoming = door.open_within(tcp, Limits { handshakes: 1, ..DoorKind::Agent.limits() });
    assert!(!handshakes.queued());
    let stalling = tokio::net::TcpStream::connect(address).await.unwrap();
    let queued = async |wanted| {
        while handshakes.queued() != wanted {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), queued(true)).await.unwrap();
    assert_eq!(handshakes.running(), 1);
    drop(stalling);
    timeout(Duration::from_secs(10), queued(false)).await.unwrap();
}

#[tokio::test]
async fn a_dropped_door_frees_its_address() {
    let rig = Rig::new();
    let (incoming, address) = rig.open(DoorKind::Agent);
    let address = address.parse().unwrap();
    drop(incoming);
    let rebound = async {
        while Tcp::bind(DoorKind::Agent, address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), rebound).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_door_recovers_from_a_lack_of_file_descriptors() {
    let rig = Rig::new();
    let (outside, inside) = tokio::io::duplex(64 * 1024);
    let too_many_files = || Err(io::Error::from_raw_os_error(24));
    let script = [too_many_files(), too_many_files(), Err(io::ErrorKind::ConnectionAborted.into()), Ok(inside)];
    let started = tokio::time::Instant::now();
    let mut incoming = rig.door(DoorKind::Client).open(Script(script.into()));
    let tls = rig.client(DoorKind::Client, &rig.subject("ada", identity::OPERATORS));
    let handshake = tokio_rustls::TlsConnector::from(tls).connect("127.0.0.1".try_into().unwrap(), outside);
    let (stream, connection) = tokio::join!(handshake, incoming.next());
    stream.unwrap();
    assert_eq!(connection.unwrap().unwrap().peer().identity.user, "ada");
    let pauses = started.elapsed();
    assert!(pauses >= Duration::from_millis(200) && pauses < Duration::from_secs(1), "{pauses:?}");
}

#[tokio::test]
async fn a_service_behind_a_door_gets_the_identity_of_the_caller() {
    let rig = Rig::new();
    let (incoming, address) = rig.open(DoorKind::Client);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = door_limits(Server::builder(), DoorKind::Client).serve_with_incoming_shutdown(
        WhoAmI,
        incoming,
        stopped.map(|_| ()),
    );
    let server = tokio::spawn(server);

    let tls = rig.client(DoorKind::Client, &rig.subject("ada", identity::OPERATORS));
    let host: HostPort = address.parse().unwrap();
    let dial = tower::service_fn(move |_| {
        let (tls, host) = (Arc::clone(&tls), host.clone());
        async move { connect(tls, &host).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut channel = endpoint.connect_with_connector(dial).await.unwrap();
    std::future::poll_fn(|cx| Service::poll_ready(&mut channel, cx)).await.unwrap();
    let request = http::Request::post("/test.WhoAmI/Ask").header("content-type", "application/grpc");
    let response = channel.call(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["user"], "ada");

    drop(channel);
    stop.send(()).unwrap();
    timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}

// === helpers ===

/// A fleet of two on disk, whose replica 1 opens the doors.
struct Rig {
    dir: TempDir,
    fleet: FleetFolder,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fleet = FleetFolder::create(dir.path(), &[plan(1), plan(2)]).unwrap();
        Self { dir, fleet }
    }

    fn replica_tls(&self) -> ReplicaTls {
        ReplicaTls::load(&self.fleet.replica_dir(ReplicaId(1)).join("tls")).unwrap()
    }

    fn door(&self, kind: DoorKind) -> Door {
        let tls = self.replica_tls();
        let config = match kind {
            DoorKind::Peer => tls.peer_server,
            DoorKind::Agent => tls.agent_server,
            DoorKind::Client | DoorKind::Http => tls.server,
        };
        Door::new(kind, config, self.fleet.id().clone()).renewing_within(GRACE)
    }

    fn open(&self, kind: DoorKind) -> (muster_controller::door::listener::Incoming, String) {
        self.open_at(kind, ANY.parse().unwrap())
    }

    fn open_at(&self, kind: DoorKind, address: SocketAddr) -> (muster_controller::door::listener::Incoming, String) {
        let tcp = Tcp::bind(kind, address).unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        (self.door(kind).open(tcp), address)
    }

    fn authority(&self, kind: DoorKind) -> &Authority {
        match kind {
            DoorKind::Peer => self.fleet.peer_authority(),
            DoorKind::Agent | DoorKind::Client | DoorKind::Http => self.fleet.client_authority(),
        }
    }

    fn subject<'a>(&'a self, user: &'a str, group: &'a str) -> CertificateSubject<'a> {
        let validity = Validity::starting(SystemTime::now(), HOUR);
        CertificateSubject {
            user,
            group: Some(group),
            fleet: self.fleet.id(),
            usage: Usage::Client,
            hosts: &[],
            validity,
        }
    }

    /// A client whose certificate comes from the CA of the door.
    fn client(&self, door: DoorKind, subject: &CertificateSubject<'_>) -> Arc<ClientConfig> {
        self.client_of(self.authority(door), self.authority(door), subject)
    }

    /// A client without a certificate.
    fn stranger(&self, door: DoorKind) -> Arc<ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        let ca = self.authority(door).certificate_pem();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(client)
    }

    fn client_of(
        &self,
        signer: &Authority,
        trusted: &Authority,
        subject: &CertificateSubject<'_>,
    ) -> Arc<ClientConfig> {
        let issued = signer.issue(subject).unwrap();
        let file = |name: &str, text: &str| -> PathBuf {
            let path = self.dir.path().join(name);
            muster_pki::secret::replace(&path, text, muster_pki::secret::Access::Owner).unwrap();
            path
        };
        let (ca, certificate) = (file("ca.crt", trusted.certificate_pem()), file("it.crt", &issued.certificate));
        Credentials::load(&ca, &certificate, &file("it.key", &issued.key)).unwrap().client().unwrap()
    }

    /// Connects by loopback TCP and returns the door's decision.
    async fn knock(&self, kind: DoorKind, client: Arc<ClientConfig>) -> Result<Connection, DoorRefusal> {
        let mut tcp = Tcp::bind(kind, ANY.parse().unwrap()).unwrap();
        let address = tcp.local_addr().unwrap();
        let caller = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let name = "127.0.0.1".try_into().unwrap();
            // In TLS 1.3 the client is done before the server has checked its certificate, so its own view decides
            // nothing here.
            tokio_rustls::TlsConnector::from(client).connect(name, stream).await.ok()
        };
        let door = self.door(kind);
        let answer = async {
            let (io, remote) = tcp.accept().await.unwrap();
            door.admit(io, remote).await
        };
        let (stream, decision) = tokio::join!(caller, answer);
        if decision.is_err()
            && let Some(mut stream) = stream
        {
            let heard = timeout(Duration::from_secs(10), stream.read(&mut [0; 1])).await.unwrap();
            assert!(!matches!(heard, Ok(1..)), "a refused caller is cut off");
        }
        decision
    }
}

fn plan(id: u64) -> ReplicaPlan {
    let address = |door: u64| format!("127.0.0.1:{}", 7400 + 10 * id + door).parse().unwrap();
    ReplicaPlan { id: ReplicaId(id), hosts: vec![], peer: address(0), agent: address(1), client: address(2) }
}

async fn connected<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(Duration::from_secs(10), connecting).await.unwrap()
}

/// A listener that follows a script and then stays silent.
struct Script(VecDeque<io::Result<tokio::io::DuplexStream>>);

impl Listener for Script {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Io>, SocketAddr)>> {
        match self.0.pop_front() {
            Some(next) => {
                let next = next.map(|io| (Box::new(io) as Box<dyn Io>, ANY.parse().unwrap()));
                std::future::ready(next).boxed()
            }
            None => std::future::pending().boxed(),
        }
    }
}

/// Answers every call with the caller's name.
#[derive(Clone)]
struct WhoAmI;

impl Service<http::Request<Body>> for WhoAmI {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().unwrap();
        let response = http::Response::builder().header("user", peer.identity.user.clone());
        std::future::ready(Ok(response.body(Body::empty()).unwrap()))
    }
}
