//! Harness of three replicas in one process: real consensus, real gRPC and real storage code, over a simulated network
//! and simulated disks that can lose whatever was not synced.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_lifecycle::command::{Command, OperatorOperation, Origin, Outcome, Precondition, RequestId};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::abort::RecordAbort;
use muster_raft::clock::SystemClock;
use muster_raft::connector::{Connector, Io};
use muster_raft::disk::sim::SimDisk;
use muster_raft::disk_health::SyncLimits;
use muster_raft::feed::Feed;
use muster_raft::greeting::{PeerIdentity, ProvenReplica};
use muster_raft::log_store::{NewStore, StoreOwner};
use muster_raft::peer_service::peer_service;
use muster_raft::replica::{Replica, Timing};
use muster_raft::store::{OpenOptions, ReplicaStore};
use muster_raft::types::Endpoint;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Connected;

pub const FLEET: &str = "test-fleet";
/// Far longer than anything here takes; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
const TIMING: Timing = Timing { heartbeat_ms: 60, election_min_ms: 200, election_max_ms: 400, syncs: SYNCS };
/// Short, so that a test of a slow disk need not wait long, and long enough for a busy machine.
pub const SYNCS: SyncLimits = SyncLimits { slow: Duration::from_millis(300), sustained: Duration::from_secs(2) };

/// The connections between replicas, as byte pipes.
#[derive(Default)]
pub struct Wires {
    doors: Mutex<BTreeMap<ReplicaId, Socket>>,
}

/// The socket at which a replica can be dialled, until it dies.
#[derive(Clone)]
struct Socket {
    door: mpsc::UnboundedSender<io::Result<Wire>>,
    death: CancellationToken,
}

/// The receiving end of a pipe, with the id of the replica that dialled.
pub struct Wire {
    stream: DuplexStream,
    from: ReplicaId,
}

struct Dialler {
    wires: Arc<Wires>,
    from: ReplicaId,
}

impl Connector for Dialler {
    fn connect(&self, target: ReplicaId, _address: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (wires, from) = (Arc::clone(&self.wires), self.from);
        async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let socket = |id| wires.doors.lock().unwrap().get(&id).cloned();
            let (target, source) = (socket(target).ok_or_else(refused)?, socket(from).ok_or_else(refused)?);
            let (ours, mut near) = tokio::io::duplex(1024 * 1024);
            let (mut far, theirs) = tokio::io::duplex(1024 * 1024);
            target.door.send(Ok(Wire { stream: theirs, from })).map_err(|_| refused())?;
            // The pipe breaks when either end dies, as a socket would.
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = target.death.cancelled() => {}
                    () = source.death.cancelled() => {}
                }
            });
            Ok(Box::new(ours) as Box<dyn Io>)
        }
        .boxed()
    }
}

impl Connected for Wire {
    type ConnectInfo = ProvenReplica;

    fn connect_info(&self) -> ProvenReplica {
        ProvenReplica(self.from)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// One running replica, with the handles that end it.
pub struct Running {
    pub replica: Replica,
    pub abort: Arc<RecordAbort>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

/// Disks that outlive their replicas, and the replicas that run now.
pub struct Cluster {
    pub wires: Arc<Wires>,
    pub disks: BTreeMap<ReplicaId, SimDisk>,
    pub running: BTreeMap<ReplicaId, Running>,
    members: BTreeMap<ReplicaId, Endpoint>,
}

impl Cluster {
    pub async fn start(ids: &[ReplicaId]) -> Self {
        let members = ids.iter().map(|id| (*id, endpoint(*id))).collect();
        let disks = ids.iter().map(|id| (*id, SimDisk::new())).collect();
        let mut cluster = Self { wires: Arc::default(), disks, running: BTreeMap::new(), members };
        for id in ids {
            cluster.boot(*id).await;
        }
        cluster.settle().await;
        cluster
    }

    /// Starts a replica on the content of its disk.
    pub async fn boot(&mut self, id: ReplicaId) {
        let initial = if self.members.contains_key(&id) { self.members.clone() } else { BTreeMap::new() };
        let abort = Arc::new(RecordAbort::default());
        let replica = self.launch(id, &abort).await;
        let stop = CancellationToken::new();
        let serving = self.serve(id, &replica, &stop);
        let (joining, joining_stop) = (replica.clone(), stop.clone());
        tokio::spawn(async move {
            joining.form(&initial, &joining_stop).await.expect("the cluster forms");
            let _ = joining.announce(&joining_stop).await;
        });
        self.running.insert(id, Running { replica, abort, stop, serving });
    }

    /// Starts consensus on the content of the disk, not yet served nor part of a cluster.
    async fn launch(&mut self, id: ReplicaId, abort: &Arc<RecordAbort>) -> Replica {
        let feed = Feed::new(Arc::new(SystemClock));
        let store = ReplicaStore::open(OpenOptions {
            disk: self.disks.entry(id).or_default().mount(),
            checkpoint_dir: None,
            identity: StoreOwner { replica: id, fleet: Uid(7) },
            create: Some(NewStore { store: Uid(rand::random()), generation: 0 }),
            publisher: Arc::clone(&feed) as _,
            abort: Arc::clone(abort) as _,
        })
        .expect("the store opens");
        let identity = PeerIdentity { fleet: FLEET.into(), id, store: store.2.store_id };
        let dialler = Arc::new(Dialler { wires: Arc::clone(&self.wires), from: id });
        Replica::start(identity, store, feed, dialler, TIMING, "test").await.expect("consensus starts")
    }

    /// Starts a replica that must be turned away while it tries to form, for a reason that contains `why`.
    pub async fn boot_expecting_refusal(&mut self, id: ReplicaId, why: &str) {
        let replica = self.launch(id, &Arc::default()).await;
        let stop = CancellationToken::new();
        let serving = self.serve(id, &replica, &stop);
        let formed = tokio::time::timeout(PATIENCE, replica.form(&self.members, &stop)).await.expect("an answer");
        let refusal = formed.expect_err("a wiped replica must not form").to_string();
        assert!(refusal.contains(why), "{refusal}");
        stop.cancel();
        let _ = serving.await;
        replica.kill().await;
        self.wires.doors.lock().unwrap().remove(&id);
    }

    fn serve(&self, id: ReplicaId, replica: &Replica, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
        let (door, incoming) = mpsc::unbounded_channel();
        self.wires.doors.lock().unwrap().insert(id, Socket { door, death: stop.clone() });
        let (service, stop) = (peer_service(replica.clone()), stop.clone());
        tokio::spawn(async move {
            let incoming = UnboundedReceiverStream::new(incoming);
            let router = Server::builder().add_service(service);
            let serving = router.serve_with_incoming(incoming);
            tokio::select! {
                _ = serving => {}
                () = stop.cancelled() => {}
            }
        })
    }

    /// Ends a replica as a crash would: nothing is flushed or handed over. Its disk stays as it was.
    pub async fn crash(&mut self, id: ReplicaId) {
        let running = self.running.remove(&id).expect("it runs");
        self.wires.doors.lock().unwrap().remove(&id);
        self.disks[&id].kill();
        running.stop.cancel();
        let _ = running.serving.await;
        running.replica.kill().await;
    }

    /// Cuts the power: the replica ends and its disk forgets what was not synced.
    pub async fn power_loss(&mut self, id: ReplicaId, seed: u64) {
        self.crash(id).await;
        self.disks[&id].power_loss(seed);
    }

    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.running[&id].replica
    }

    /// Waits until all running replicas agree on a leader and have applied the same.
    pub async fn settle(&self) {
        eventually("all replicas settle", || {
            let replicas: Vec<_> = self.running.values().map(|running| &running.replica).collect();
            let leaders: BTreeSet<_> = replicas.iter().map(|replica| replica.leader()).collect();
            let applied: BTreeSet<_> = replicas.iter().map(|replica| replica.current().applied_index()).collect();
            let announced = replicas[0].current().state.replicas().len() >= replicas.len();
            let led = leaders.iter().all(|leader| leader.is_some_and(|id| self.running.contains_key(&id)));
            leaders.len() == 1 && led && applied.len() == 1 && announced
        })
        .await;
    }

    pub fn leader(&self) -> ReplicaId {
        let leader = self.running.values().find_map(|running| running.replica.leader());
        leader.expect("a leader")
    }

    /// Creates a node through replica `id`. `Ok` means acknowledged.
    pub async fn create(&self, id: ReplicaId, name: &str, patience: Duration) -> Result<Outcome, String> {
        let settled = self.replica(id).write(create(name), Instant::now() + patience).await;
        settled.map(|settled| settled.outcome).map_err(|error| error.to_string())
    }
}

pub fn create(name: &str) -> Command {
    let draft = NodeDraft { name: name.into(), ..NodeDraft::default() };
    command(OperatorOperation::CreateNode { draft: Box::new(draft), uid: Uid(rand::random()) })
}

pub fn cordon(name: &str, unschedulable: bool) -> Command {
    command(OperatorOperation::CordonNode { name: name.into(), unschedulable, precondition: Precondition::default() })
}

pub fn command(operation: OperatorOperation) -> Command {
    let request = RequestId { client: rand::random(), sequence: 1 };
    Command { origin: Origin::Operator { user: "test".into() }, request: Some(request), operation: operation.into() }
}

pub fn endpoint(id: ReplicaId) -> Endpoint {
    let address = |door: &str| format!("replica-{id}:{door}");
    Endpoint { peer: address("1"), agent: address("2"), client: address("3") }
}

/// Polls until `condition` holds, for as long as [`PATIENCE`].
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"));
}
