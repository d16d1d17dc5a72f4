//! Replicas in one process with real TLS doors for peers and agents on loopback, and simulated disks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use muster_controller::door::agent;
use muster_controller::door::connector::TlsConnector;
use muster_controller::door::handshakes::Handshakes;
use muster_controller::door::listener::{Door, Incoming, Tcp};
use muster_controller::door::{DoorKind, door_limits};
use muster_controller::enrolment::enrolment_service;
use muster_controller::enrolment::signer::Signer;
use muster_controller::hearing::contact::Contact;
use muster_controller::hearing::service::{Explains, pulse_service};
use muster_controller::hearing::{Hearing, exchange};
use muster_controller::server::prove_replica;
use muster_controller::session::Sessions;
use muster_controller::session::service::agent_service;
use muster_lifecycle::command::{Command, Operation, Origin, Outcome, Precondition, Receipt, RequestId};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Node;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::WallTime;
use muster_pki::tls::ReplicaTls;
use muster_pki::{FleetFolder, ReplicaPlan};
use muster_raft::abort::RecordAbort;
use muster_raft::clock::{Clock, SystemClock};
use muster_raft::disk::sim::SimDisk;
use muster_raft::feed::Feed;
use muster_raft::greeting::Introduction;
use muster_raft::log_store::{Birth, Identity};
use muster_raft::peer_service::peer_service;
use muster_raft::replica::{Replica, Timing};
use muster_raft::store::{OpenOptions, Store};
use muster_raft::types::Endpoint;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::Router;

/// Far longer than any step here takes; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
pub const RENEWAL_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);
const BACKOFF_CAP: Duration = Duration::from_secs(10);
const TIMING: Timing = Timing { heartbeat_ms: 100, election_min_ms: 300, election_max_ms: 600 };

pub struct Cluster {
    _dir: TempDir,
    pub fleet: FleetFolder,
    pub running: BTreeMap<ReplicaId, Running>,
    pub clock: Arc<Shifted>,
}

/// The clock of cluster time, which a test can put forward.
#[derive(Default)]
pub struct Shifted(AtomicU64);

pub struct Running {
    pub replica: Replica,
    pub hearing: Hearing,
    pub contact: Contact,
    pub sessions: Sessions,
    stop: CancellationToken,
}

/// Explains nothing: no test here asks.
struct Speechless;

#[tonic::async_trait]
impl Explains for Speechless {
    async fn explain(&self, _: &str, _: &str, _: &str) -> Result<Bytes, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

// === impl Shifted ===

impl Shifted {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

impl Clock for Shifted {
    fn boot_time(&self) -> Duration {
        SystemClock.boot_time() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn wall_time(&self) -> WallTime {
        SystemClock.wall_time()
    }
}

// === impl Cluster ===

impl Cluster {
    pub async fn start(ids: &[ReplicaId]) -> Self {
        Self::start_after(ids, |_| {}).await
    }

    /// Starts replicas after `prepare` has changed their folders.
    pub async fn start_after(ids: &[ReplicaId], prepare: impl FnOnce(&FleetFolder)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plans: Vec<_> = ids.iter().map(|id| plan(id.0)).collect();
        let fleet = FleetFolder::create(dir.path(), &plans).unwrap();
        prepare(&fleet);
        let mut cluster = Self { _dir: dir, fleet, running: BTreeMap::new(), clock: Arc::default() };
        for id in ids {
            cluster.boot(*id).await;
        }
        eventually("all replicas are in contact with a leader and announced", || {
            let settled = |one: &Running| {
                let announced = one.replica.current().state.replicas().len() == ids.len();
                announced && one.contact.lost_for().is_none() && one.replica.leader().is_some()
            };
            cluster.running.values().all(settled)
        })
        .await;
        cluster
    }

    async fn boot(&mut self, id: ReplicaId) {
        let feed = Feed::new(Arc::clone(&self.clock) as _);
        let replica = self.launch(id, &feed).await;
        let hearing = Hearing::new(id, BACKOFF_CAP, Arc::new(SystemClock), feed, Handshakes::default());
        let (contact, stop) = (Contact::new(hearing.clone()), CancellationToken::new());
        let sessions = Sessions::new(replica.clone(), hearing.clone(), contact.clone());
        self.open_doors(id, &replica, &hearing, &sessions, &stop);
        tokio::spawn(exchange::run(hearing.clone(), replica.clone(), Arc::default(), stop.clone()));
        tokio::spawn(contact.clone().run(replica.clone(), stop.clone()));
        tokio::spawn(sessions.clone().run(stop.clone()));
        let (joining, initial, joining_stop) = (replica.clone(), self.members(), stop.clone());
        tokio::spawn(async move {
            joining.form(&initial, &joining_stop).await.expect("the cluster forms");
            let _ = joining.announce(&joining_stop).await;
        });
        self.running.insert(id, Running { replica, hearing, contact, sessions, stop });
    }

    /// Ends a replica as a crash would.
    pub async fn stop(&mut self, id: ReplicaId) {
        let running = self.running.remove(&id).expect("it runs");
        running.stop.cancel();
        running.replica.kill().await;
    }

    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.running[&id].replica
    }

    pub async fn leader(&self) -> ReplicaId {
        let mut leader = None;
        eventually("one of those that run leads", || {
            leader = self.running.values().find_map(|one| one.replica.leader());
            leader.is_some_and(|leader| self.running.contains_key(&leader))
        })
        .await;
        leader.unwrap()
    }

    /// The node as replica `id` knows it.
    pub fn node(&self, id: ReplicaId, name: &str) -> Arc<Node> {
        Arc::clone(self.replica(id).current().state.node(name).expect("the node exists"))
    }

    /// Revision and log index: what any write would move.
    pub fn position(&self, id: ReplicaId) -> (u64, u64) {
        let current = self.replica(id).current();
        (current.state.revision().0, current.applied_index())
    }

    pub async fn operate(&self, operation: Operation) -> Receipt {
        self.write(Origin::Operator { user: "ada".into() }, operation).await
    }

    pub async fn write(&self, origin: Origin, operation: Operation) -> Receipt {
        let request = Some(RequestId { client: rand::random(), sequence: 1 });
        let command = Command { origin, request, operation };
        let replica = self.running.values().next().unwrap().replica.clone();
        let settled = replica.write(command, Instant::now() + PATIENCE).await.unwrap();
        match settled.outcome {
            Outcome::Done(receipt) => receipt,
            Outcome::Rejected(rejection) => panic!("{rejection}"),
        }
    }

    pub async fn delete(&self, name: &str) -> Receipt {
        self.operate(Operation::DeleteNode { name: name.into(), precondition: Precondition::default() }).await
    }

    pub fn plan(&self, id: ReplicaId) -> &ReplicaPlan {
        self.fleet.replicas().iter().find(|plan| plan.id == id.0).expect("it is planned")
    }

    async fn launch(&self, id: ReplicaId, feed: &Arc<Feed>) -> Replica {
        let store = Store::open(OpenOptions {
            disk: SimDisk::new().mount(),
            checkpoint_dir: None,
            identity: Identity { replica: id, fleet: Uid(7) },
            create: Some(Birth { store: Uid(rand::random()), generation: 0 }),
            publisher: Arc::clone(feed) as _,
            abort: Arc::new(RecordAbort::default()),
        })
        .expect("the store opens");
        let introduction = Introduction { fleet: self.fleet.id().to_string().into(), id, store: store.2.store_id };
        let connector = Arc::new(TlsConnector::new(self.tls(id).peer_client, self.fleet.id().clone()));
        let started = Replica::start(introduction, store, Arc::clone(feed), connector, TIMING, "test").await;
        started.expect("consensus starts")
    }

    fn open_doors(
        &self,
        id: ReplicaId,
        replica: &Replica,
        hearing: &Hearing,
        sessions: &Sessions,
        stop: &CancellationToken,
    ) {
        let pulses = pulse_service(replica.clone(), hearing.clone(), sessions.claims(), Arc::new(Speechless));
        let peers = door_limits(Server::builder(), DoorKind::Peer)
            .add_service(InterceptedService::new(peer_service(replica.clone()), prove_replica))
            .add_service(InterceptedService::new(pulses, prove_replica));
        self.serve(DoorKind::Peer, id, peers, stop);
        let dir = self.fleet.replica_dir(id.0).join("tls");
        let signer = Signer::of(self.tls(id).authority.as_ref(), &dir, self.fleet.id(), LIFETIME);
        let routes = Routes::new(agent_service(replica.clone(), sessions.clone())).add_service(enrolment_service(
            sessions.writes(),
            Arc::clone(sessions.figures()),
            signer,
        ));
        tokio::spawn(agent::serve(self.open(DoorKind::Agent, id), routes, stop.clone()));
    }

    fn open(&self, kind: DoorKind, id: ReplicaId) -> Incoming {
        let (plan, tls) = (self.plan(id), self.tls(id));
        let (address, tls) = match kind {
            DoorKind::Peer => (plan.peer.listen(), tls.peer_server),
            DoorKind::Agent | DoorKind::Client | DoorKind::Http => (plan.agent.listen(), tls.agent_server),
        };
        let door = Door::new(kind, tls, self.fleet.id().clone()).renewing_within(RENEWAL_GRACE);
        door.open(Tcp::bind(kind, address).unwrap())
    }

    fn serve(&self, kind: DoorKind, id: ReplicaId, router: Router, stop: &CancellationToken) {
        let incoming = self.open(kind, id);
        let closed = stop.clone().cancelled_owned();
        tokio::spawn(async move { router.serve_with_incoming_shutdown(incoming, closed).await.unwrap() });
    }

    fn members(&self) -> BTreeMap<ReplicaId, Endpoint> {
        let endpoint = |plan: &ReplicaPlan| Endpoint {
            peer: plan.peer.to_string(),
            agent: plan.agent.to_string(),
            client: plan.client.to_string(),
        };
        self.fleet.replicas().iter().map(|plan| (ReplicaId(plan.id), endpoint(plan))).collect()
    }

    pub fn tls(&self, id: ReplicaId) -> ReplicaTls {
        ReplicaTls::load(&self.fleet.replica_dir(id.0).join("tls")).unwrap()
    }
}

/// Each replica has a loopback address of its own, so that concurrent tests do not take each other's ports.
fn plan(id: u64) -> ReplicaPlan {
    let [one, two]: [u8; 2] = rand::random();
    let host = Ipv4Addr::new(127, one, two, u8::try_from(id).unwrap());
    // All probes stay open until all ports are known, or one port could be given twice.
    let probes = [(); 3].map(|()| std::net::TcpListener::bind((host, 0)).unwrap());
    let [peer, agent, client] = probes.each_ref().map(|probe| probe.local_addr().unwrap().to_string().parse().unwrap());
    ReplicaPlan { id, hosts: vec![], peer, agent, client }
}

/// Polls until `condition` holds, for as long as [`PATIENCE`].
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"));
}
