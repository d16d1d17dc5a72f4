//! Tests of the client against scripted replicas: real TLS, real certificates, no consensus.

use std::sync::{Mutex, PoisonError};

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use muster_pki::tls::ReplicaTls;
use muster_pki::{FleetFolder, HostPort, ReplicaPlan};
use muster_proto::v1::operator_server::{Operator, OperatorServer};
use muster_proto::v1::watch_event::Type;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use super::*;

#[test]
fn every_writer_has_its_own_id_and_counts_upwards() {
    let (mut one, mut other) = (Writer::new(), Writer::new());
    let (first, second) = (one.next(), one.next());
    assert_eq!(first.client.len(), 16);
    assert_eq!(first.client, second.client);
    assert!(first.sequence < second.sequence);
    assert_ne!(first.client, other.next().client);
}

#[tokio::test]
async fn a_call_moves_on_from_dead_and_unavailable_replicas() {
    let world = World::new(vec![Fake::failing(Code::Unavailable, "no leader"), Fake::default()]);
    let client = world.client_with_dead_first();
    let status = client.status().await.unwrap();
    assert_eq!(status.answered_by, 1);
    let read = client.get("nodes", "n1", false).await.unwrap();
    assert_eq!((&read.value[..], read.revision), (&b"n1"[..], 7));
    assert_eq!(read.answered_by, world.addresses[1].to_string());
    let explained = client.explain("zone", "r1/b").await.unwrap();
    assert_eq!((&explained.value[..], explained.revision), (&b"zone r1/b"[..], 7));
}

#[tokio::test]
async fn final_codes_are_not_retried_at_another_replica() {
    for code in [Code::NotFound, Code::Aborted, Code::AlreadyExists, Code::PermissionDenied, Code::InvalidArgument] {
        let world = World::new(vec![Fake::failing(code, "because"), Fake::default()]);
        let error = world.client().write(cordon()).await.unwrap_err();
        assert_eq!(error.code(), Some(code));
        assert_eq!(error.to_string(), "because");
        assert!(world.fakes[1].requests().is_empty(), "{code:?} was tried on another replica");
    }
}

#[tokio::test]
async fn a_retried_write_keeps_its_id_and_the_next_one_gets_another() {
    let world = World::new(vec![Fake::failing(Code::Unavailable, "leader lost"), Fake::default()]);
    let client = world.client();
    client.write(cordon()).await.unwrap();
    client.write(cordon()).await.unwrap();
    let (failed, applied) = (world.fakes[0].requests(), world.fakes[1].requests());
    assert_eq!(failed[0], applied[0]);
    assert_eq!((applied[0].sequence, applied[1].sequence), (1, 2));
    assert_eq!(failed.len(), 1, "the replica that answered last comes first");
}

#[tokio::test]
async fn at_the_deadline_every_replica_is_listed_with_its_reason() {
    let quorum = "no quorum: replicas 2, 3 unreachable";
    let world = World::new(vec![Fake::failing(Code::Unavailable, quorum), Fake::silent()]);
    let client = world.client_with_dead_first().with_timeout(Duration::from_millis(900));
    let Error::Exhausted(exhausted) = client.write(cordon()).await.unwrap_err() else { panic!("an answer?") };
    assert_eq!(exhausted.tried[0].why, Why::Refused, "{exhausted}");
    assert_eq!(exhausted.tried[1].why, Why::Unavailable(quorum.into()));
    assert!(matches!(exhausted.tried[2].why, Why::Silent(_)), "{exhausted}");
    assert!(exhausted.outcome_unknown);
}

#[tokio::test]
async fn without_any_replica_running_the_client_says_so_at_once() {
    let world = World::new(Vec::new());
    let endpoints = vec![unused_address(), unused_address(), unused_address()];
    let client = Client::new(ClientConfig { endpoints, ..world.config() }).unwrap();
    let begun = Instant::now();
    for error in [client.list(&Query::of("nodes")).await.unwrap_err(), client.status().await.unwrap_err()] {
        let Error::Exhausted(exhausted) = error else { panic!("an answer?") };
        assert!(exhausted.only_refusals() && !exhausted.outcome_unknown, "{exhausted}");
        assert!(exhausted.to_string().starts_with("no replica is running at the addresses in client.toml"));
        assert_eq!(exhausted.to_string().matches("connection refused").count(), 3, "{exhausted}");
    }
    assert!(begun.elapsed() < DEFAULT_TIMEOUT / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_waits_for_a_replica_that_has_no_leader_yet() {
    let world = World::new(vec![Fake::failing(Code::Unavailable, "no leader")]);
    let timeout = Duration::from_millis(700);
    let (client, begun) = (world.client_with_dead_first().with_timeout(timeout), Instant::now());
    let Error::Exhausted(exhausted) = client.get("nodes", "n1", false).await.unwrap_err() else { panic!("an answer?") };
    assert!(begun.elapsed() >= timeout && !exhausted.only_refusals(), "{exhausted}");
    assert!(exhausted.to_string().starts_with("no replica could answer within 700ms"), "{exhausted}");
}

#[tokio::test]
async fn a_certificate_of_another_fleet_is_reported_as_distrust() {
    let (ours, theirs) = (World::new(vec![Fake::default()]), World::new(vec![Fake::default()]));
    let stranger = ClientConfig { endpoints: ours.addresses.clone(), ..theirs.config() };
    let client = Client::new(stranger).unwrap().with_timeout(Duration::from_millis(500));
    let Error::Exhausted(exhausted) = client.status().await.unwrap_err() else { panic!("an answer?") };
    assert!(exhausted.only_distrust(), "{exhausted}");
}

#[tokio::test]
async fn lists_and_backups_are_assembled_from_their_chunks() {
    let world = World::new(vec![Fake::default()]);
    let client = world.client();
    let list = client.list(&Query::of("nodes")).await.unwrap();
    assert_eq!((list.value.len(), list.revision), (3, 7));
    let file = tempfile::tempfile().unwrap();
    assert_eq!(client.backup(&file).await.unwrap(), 11);
    assert_eq!(file.metadata().unwrap().len(), 11);
}

#[tokio::test]
async fn a_watch_resumes_at_another_replica_without_gap_or_duplicate() {
    let first = Fake { history: 1..=3, ..Fake::default() };
    // The second replica repeats events that were delivered already.
    let second = Fake { history: 1..=6, overlap: 2, ..Fake::default() };
    let world = World::new(vec![first, second]);
    let mut watch = world.client().watch(Query::of("nodes"), Some(1)).await.unwrap();
    assert_eq!(revisions(&mut watch, 5).await, [2, 3, 4, 5, 6]);
    assert_eq!(watch.revision(), 6);
}

#[tokio::test]
async fn a_watch_from_now_begins_with_the_list() {
    let world = World::new(vec![Fake { history: 1..=8, ..Fake::default() }]);
    let mut watch = world.client().watch(Query::of("nodes"), None).await.unwrap();
    // Three objects listed at revision 7, then the change after it.
    assert_eq!(revisions(&mut watch, 4).await, [7, 7, 7, 8]);
}

#[tokio::test]
async fn bookmarks_are_not_delivered_and_a_watch_resumes_from_them() {
    let first = Fake { history: 1..=2, bookmark: Some(5), ..Fake::default() };
    let second = Fake { history: 5..=7, ..Fake::default() };
    let world = World::new(vec![first, second]);
    let mut watch = world.client().watch(Query::of("nodes"), Some(0)).await.unwrap();
    assert_eq!(revisions(&mut watch, 4).await, [1, 2, 6, 7]);
}

#[tokio::test]
async fn gone_is_final_only_when_every_replica_says_so() {
    let forgetful = || Fake { history: 10..=12, ..Fake::default() };
    let world = World::new(vec![forgetful(), Fake { history: 1..=4, ..Fake::default() }]);
    let mut watch = world.client().watch(Query::of("nodes"), Some(2)).await.unwrap();
    assert_eq!(revisions(&mut watch, 2).await, [3, 4]);

    let world = World::new(vec![forgetful(), forgetful()]);
    let mut watch = world.client().watch(Query::of("nodes"), Some(2)).await.unwrap();
    assert!(matches!(watch.next().await, Err(WatchError::Gone { after: 2 })));
}

#[tokio::test]
async fn a_watch_polled_with_short_time_outs_makes_progress() {
    let world = World::new(vec![Fake { history: 1..=1, ..Fake::default() }]);
    let mut watch = world.client().watch(Query::of("nodes"), Some(0)).await.unwrap();
    let event = loop {
        // Polls once and drops the future; the attempt to connect must survive that.
        if let Some(event) = watch.next().now_or_never() {
            break event.unwrap();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(event.revision, 1);
}

async fn revisions(watch: &mut Watch, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.push(watch.next().await.unwrap().revision);
    }
    seen
}

fn cordon() -> write_request::Operation {
    write_request::Operation::Cordon(v1::Cordon { name: "n1".into(), unschedulable: true, precondition: None })
}

/// An address at which nothing listens.
fn unused_address() -> HostPort {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    HostPort::from(listener.local_addr().unwrap())
}

/// Some replicas of one fleet, each behind its own door.
struct World {
    dir: tempfile::TempDir,
    addresses: Vec<HostPort>,
    fakes: Vec<Arc<Fake>>,
}

impl World {
    fn new(fakes: Vec<Fake>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
        let plan = ReplicaPlan { id: 1_u64.into(), hosts: Vec::new(), peer: at(1), agent: at(2), client: at(3) };
        let fleet = FleetFolder::create(dir.path(), &[plan]).unwrap();
        let tls = ReplicaTls::load(&fleet.replica_dir(1_u64.into()).join("tls")).unwrap();
        let fakes: Vec<Arc<Fake>> = fakes.into_iter().map(Arc::new).collect();
        let open = |(index, fake): (usize, &Arc<Fake>)| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().into();
            let service = OperatorServer::new(Replica { id: index as u64, fake: fake.clone() });
            tokio::spawn(serve(listener, tls.server.clone(), Routes::new(service)));
            address
        };
        let addresses = fakes.iter().enumerate().map(open).collect();
        Self { dir, addresses, fakes }
    }

    fn config(&self) -> ClientConfig {
        let config = ClientConfig::load(&self.dir.path().join("operator/client.toml")).unwrap();
        ClientConfig { endpoints: self.addresses.clone(), ..config }
    }

    fn client(&self) -> Client {
        Client::new(self.config()).unwrap()
    }

    /// A client whose first endpoint is an address at which nothing listens.
    fn client_with_dead_first(&self) -> Client {
        let endpoints = [vec![unused_address()], self.addresses.clone()].concat();
        Client::new(ClientConfig { endpoints, ..self.config() }).unwrap()
    }
}

/// Serves gRPC behind TLS that asks for a client's certificate, as a replica's client door does.
async fn serve(listener: std::net::TcpListener, tls: Arc<rustls::ServerConfig>, routes: Routes) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, service) = (TlsAcceptor::from(tls.clone()), TowerToHyperService::new(routes.clone()));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(tcp).await else { return };
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A scripted replica.
struct Fake {
    fails: Option<(Code, &'static str)>,
    silent: bool,
    /// The changes that the replica holds; a watch ends after the last one.
    history: std::ops::RangeInclusive<u64>,
    /// How many changes before the requested one the replica sends again.
    overlap: u64,
    bookmark: Option<u64>,
    requests: Mutex<Vec<v1::RequestId>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self { fails: None, silent: false, history: 0..=0, overlap: 0, bookmark: None, requests: Mutex::default() }
    }
}

impl Fake {
    fn failing(code: Code, message: &'static str) -> Self {
        Self { fails: Some((code, message)), ..Self::default() }
    }

    fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }

    fn requests(&self) -> Vec<v1::RequestId> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn events_after(&self, from: u64) -> Result<Vec<Result<v1::WatchEvent, Status>>, Status> {
        let (oldest, newest) = (*self.history.start(), *self.history.end());
        if from + 1 < oldest {
            return Err(Status::out_of_range("gone"));
        }
        let event = |kind: Type, revision| v1::WatchEvent { r#type: kind.into(), revision, object: Bytes::new() };
        let first = (from + 1).saturating_sub(self.overlap).max(oldest);
        let changes = (first..=newest).map(|revision| Ok(event(Type::Modified, revision)));
        let bookmark = self.bookmark.map(|revision| Ok(event(Type::Bookmark, revision)));
        Ok(changes.chain(bookmark).collect())
    }
}

struct Replica {
    id: u64,
    fake: Arc<Fake>,
}

impl Replica {
    async fn behave(&self) -> Result<(), Status> {
        if self.fake.silent {
            std::future::pending::<()>().await;
        }
        match self.fake.fails {
            Some((code, message)) => Err(Status::new(code, message)),
            None => Ok(()),
        }
    }
}

type Chunks<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl Operator for Replica {
    type ListStream = Chunks<v1::ListChunk>;
    type WatchStream = Chunks<v1::WatchEvent>;
    type PulsesStream = Chunks<v1::PulsesPart>;
    type BackupStream = Chunks<v1::BackupChunk>;

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        self.behave().await?;
        Ok(Response::new(v1::GetResponse { object: request.into_inner().name.into(), revision: 7 }))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        self.behave().await?;
        let chunk = |names: &[&'static str]| {
            let objects = names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
            Ok(v1::ListChunk { objects, revision: 7 })
        };
        Ok(Response::new(stream::iter([chunk(&["a", "b"]), chunk(&["c"])]).boxed()))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.behave().await?;
        let events = self.fake.events_after(request.into_inner().from_revision.unwrap_or(0))?;
        Ok(Response::new(stream::iter(events).boxed()))
    }

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let id = request.into_inner().request.unwrap_or_default();
        self.fake.requests.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.behave().await?;
        Ok(Response::new(v1::WriteResponse::default()))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        self.behave().await?;
        let status = v1::StatusResponse { leader: Some(self.id), answered_by: self.id, ..Default::default() };
        Ok(Response::new(status))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        self.behave().await?;
        let v1::ExplainRequest { kind, name, .. } = request.into_inner();
        Ok(Response::new(v1::ExplainResponse { explanation: format!("{kind} {name}").into(), revision: 7 }))
    }

    async fn member(&self, _: Request<v1::MemberRequest>) -> Result<Response<v1::MemberResponse>, Status> {
        self.behave().await?;
        Ok(Response::new(v1::MemberResponse::default()))
    }

    async fn pulses(&self, _: Request<v1::PulsesRequest>) -> Result<Response<Self::PulsesStream>, Status> {
        self.behave().await?;
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        self.behave().await?;
        let chunk = |data: &'static [u8]| Ok(v1::BackupChunk { data: Bytes::from_static(data) });
        Ok(Response::new(stream::iter([chunk(b"hello "), chunk(b"world")]).boxed()))
    }
}
