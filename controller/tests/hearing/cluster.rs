//! Replicas in one process, each with real TLS doors for its peers and its agents on loopback, and simulated disks.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_controller::door::agent;
use muster_controller::door::connector::TlsConnector;
use muster_controller::door::handshakes::Handshakes;
use muster_controller::door::listener::{Door, Incoming, Tcp};
use muster_controller::door::{DoorKind, door_limits};
use muster_controller::hearing::canary::Canary;
use muster_controller::hearing::contact::Contact;
use muster_controller::hearing::service::{Claims, Explains, pulse_service};
use muster_controller::hearing::{Hearing, exchange};
use muster_controller::server::prove_replica;
use muster_controller::session::Sessions;
use muster_controller::session::service::agent_service;
use muster_lifecycle::command::{Command, Operation, Origin, Outcome};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::tls::ReplicaTls;
use muster_pki::{FleetFolder, ReplicaPlan};
use muster_proto::v1;
use muster_pulse::excuse::{Excuse, InForce};
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
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::slow_line::SlowConnector;

/// Far longer than any step here takes; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF_CAP: Duration = Duration::from_secs(10);
/// So fast that it delays nothing.
const FAST_LINE: usize = 1 << 30;
const TIMING: Timing = Timing { heartbeat_ms: 100, election_min_ms: 300, election_max_ms: 600 };

pub struct Cluster {
    _dir: TempDir,
    pub fleet: FleetFolder,
    disks: BTreeMap<ReplicaId, SimDisk>,
    terms: Terms,
    pub running: BTreeMap<ReplicaId, Running>,
}

/// The conditions under which replicas hear each other.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub backoff_cap: Duration,
    /// The rate of each connection between replicas, towards the replica that opened it.
    pub bytes_per_second: usize,
}

pub struct Running {
    pub replica: Replica,
    pub hearing: Hearing,
    pub contact: Contact,
    stop: CancellationToken,
    peer_door: JoinHandle<()>,
}

/// An agent door that can be closed for good.
pub struct AgentDoor {
    close: CancellationToken,
    serving: JoinHandle<()>,
}

/// Answers that contain the asker, so that a test can tell askers apart.
struct Answers;

impl Claims for Answers {
    fn claim(&self, from: ReplicaId, request: v1::ClaimRequest) -> Result<v1::ClaimResponse, Status> {
        let verdict = |_| v1::ClaimVerdict { held_by: format!("asked by {from}") };
        let verdicts = request.claims.iter().map(verdict).collect();
        Ok(v1::ClaimResponse { verdicts, ..v1::ClaimResponse::default() })
    }
}

#[tonic::async_trait]
impl Explains for Answers {
    async fn explain(&self, kind: &str, _: &str, name: &str) -> Result<Bytes, Status> {
        Ok(format!("{kind}/{name}").into())
    }
}

// === impl Terms ===

impl Default for Terms {
    fn default() -> Self {
        Self { backoff_cap: BACKOFF_CAP, bytes_per_second: FAST_LINE }
    }
}

// === impl Cluster ===

impl Cluster {
    pub async fn start(ids: &[ReplicaId]) -> Self {
        Self::start_with(ids, Terms::default()).await
    }

    pub async fn start_with(ids: &[ReplicaId], terms: Terms) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plans: Vec<_> = ids.iter().map(|id| plan(id.0)).collect();
        let fleet = FleetFolder::create(dir.path(), &plans).unwrap();
        let disks = ids.iter().map(|id| (*id, SimDisk::new())).collect();
        let mut cluster = Self { _dir: dir, fleet, disks, terms, running: BTreeMap::new() };
        for id in ids {
            cluster.boot(*id).await;
        }
        eventually("a leader is known to all", || cluster.running.values().all(|one| one.replica.leader().is_some()))
            .await;
        cluster
    }

    /// Starts a replica from its disk; it remembers no beat from an earlier run.
    pub async fn boot(&mut self, id: ReplicaId) {
        let feed = Feed::new(Arc::new(SystemClock));
        let replica = self.launch(id, &feed).await;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let hearing = Hearing::new(id, self.terms.backoff_cap, clock, feed, Handshakes::default());
        let (contact, stop) = (Contact::new(hearing.clone()), CancellationToken::new());
        let peer_door = self.open_peer_door(id, &replica, &hearing, &stop);
        tokio::spawn(exchange::run(hearing.clone(), replica.clone(), Arc::default(), stop.clone()));
        tokio::spawn(contact.clone().run(replica.clone(), stop.clone()));
        let (joining, initial, joining_stop) = (replica.clone(), self.members(), stop.clone());
        tokio::spawn(async move {
            joining.form(&initial, &joining_stop).await.expect("the cluster forms");
            let _ = joining.announce(&joining_stop).await;
        });
        self.running.insert(id, Running { replica, hearing, contact, stop, peer_door });
    }

    /// Ends a replica: its door closes and it pulls from no peer.
    pub async fn stop(&mut self, id: ReplicaId) {
        let running = self.running.remove(&id).expect("it runs");
        running.stop.cancel();
        running.replica.kill().await;
        let _ = running.peer_door.await;
    }

    /// Changes settings of the policy, through the present leader.
    pub async fn set_policy(&self, changes: &[(&str, &str)]) {
        let changes = changes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let origin = Origin::Operator { user: "alice".into() };
        let command = Command { origin, request: None, operation: Operation::SetPolicy { changes } };
        let settling = async {
            loop {
                for one in self.running.values() {
                    if let Ok(settled) = one.replica.propose(command.clone()).await {
                        return settled.outcome;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, settling).await.unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    pub fn hearing(&self, id: ReplicaId) -> &Hearing {
        &self.running[&id].hearing
    }

    pub fn leader(&self) -> ReplicaId {
        self.running.values().find_map(|one| one.replica.leader()).expect("a leader")
    }

    /// The excuse as replica `id` holds it, if it is in force there.
    pub fn excuse(&self, id: ReplicaId, excuse: Excuse) -> Option<InForce> {
        let hearing = self.hearing(id);
        let blindness = hearing.pulses().blindness();
        blindness.in_force(hearing.tick()).find(|in_force| in_force.excuse == excuse)
    }

    /// Whether replica `id` is blind in this way right now, rather than only excusing nodes because it was.
    pub fn is_blind(&self, id: ReplicaId, excuse: Excuse) -> bool {
        self.excuse(id, excuse).is_some_and(|in_force| in_force.ended.is_none())
    }

    pub fn agent_address(&self, id: ReplicaId) -> SocketAddr {
        self.plan(id).agent.listen()
    }

    pub fn open_agent_door(&self, id: ReplicaId) -> AgentDoor {
        let close = CancellationToken::new();
        let Running { replica, hearing, contact, .. } = &self.running[&id];
        let sessions = Sessions::new(replica.clone(), hearing.clone(), contact.clone());
        let routes = Routes::new(agent_service(replica.clone(), sessions));
        let serving = tokio::spawn(agent::serve(self.open(DoorKind::Agent, id), routes, close.clone()));
        AgentDoor { close, serving }
    }

    /// Starts the canary of replica `id`, which ends with it.
    pub fn start_canary(&self, id: ReplicaId) {
        let running = &self.running[&id];
        let connector = Arc::new(TlsConnector::new(self.tls(id).canary, self.fleet.id().clone()));
        let canary = Canary::new(running.hearing.clone(), connector, self.plan(id).agent.clone());
        tokio::spawn(canary.run(running.stop.clone()));
    }

    async fn launch(&self, id: ReplicaId, feed: &Arc<Feed>) -> Replica {
        let store = Store::open(OpenOptions {
            disk: self.disks[&id].mount(),
            checkpoint_dir: None,
            identity: Identity { replica: id, fleet: Uid(7) },
            create: Some(Birth { store: Uid(rand::random()), generation: 0 }),
            publisher: Arc::clone(feed) as _,
            abort: Arc::new(RecordAbort::default()),
        })
        .expect("the store opens");
        let introduction = Introduction { fleet: self.fleet.id().to_string().into(), id, store: store.2.store_id };
        let inner = TlsConnector::new(self.tls(id).peer_client, self.fleet.id().clone());
        let connector = Arc::new(SlowConnector { inner, bytes_per_second: self.terms.bytes_per_second });
        let started = Replica::start(introduction, store, Arc::clone(feed), connector, TIMING, "test").await;
        started.expect("consensus starts")
    }

    fn open_peer_door(
        &self,
        id: ReplicaId,
        replica: &Replica,
        hearing: &Hearing,
        stop: &CancellationToken,
    ) -> JoinHandle<()> {
        let pulses = pulse_service(replica.clone(), hearing.clone(), Arc::new(Answers), Arc::new(Answers));
        let router = door_limits(Server::builder(), DoorKind::Peer)
            .add_service(InterceptedService::new(peer_service(replica.clone()), prove_replica))
            .add_service(InterceptedService::new(pulses, prove_replica));
        self.serve(DoorKind::Peer, id, router, stop)
    }

    fn open(&self, kind: DoorKind, id: ReplicaId) -> Incoming {
        let (plan, tls) = (self.plan(id), self.tls(id));
        let (address, tls) = match kind {
            DoorKind::Peer => (plan.peer.listen(), tls.peer_server),
            DoorKind::Agent | DoorKind::Client | DoorKind::Http => (plan.agent.listen(), tls.agent_server),
        };
        Door::new(kind, tls, self.fleet.id().clone()).open(Tcp::bind(kind, address).unwrap())
    }

    fn serve(&self, kind: DoorKind, id: ReplicaId, router: Router, stop: &CancellationToken) -> JoinHandle<()> {
        let incoming = self.open(kind, id);
        let closed = stop.clone().cancelled_owned();
        tokio::spawn(async move { router.serve_with_incoming_shutdown(incoming, closed).await.unwrap() })
    }

    fn members(&self) -> BTreeMap<ReplicaId, Endpoint> {
        let endpoint = |plan: &ReplicaPlan| Endpoint {
            peer: plan.peer.to_string(),
            agent: plan.agent.to_string(),
            client: plan.client.to_string(),
        };
        self.fleet.replicas().iter().map(|plan| (ReplicaId(plan.id), endpoint(plan))).collect()
    }

    fn plan(&self, id: ReplicaId) -> &ReplicaPlan {
        self.fleet.replicas().iter().find(|plan| plan.id == id.0).expect("it is planned")
    }

    fn tls(&self, id: ReplicaId) -> ReplicaTls {
        ReplicaTls::load(&self.fleet.replica_dir(id.0).join("tls")).unwrap()
    }
}

// === impl AgentDoor ===

impl AgentDoor {
    /// Waits until the address is free again.
    pub async fn close(self) {
        self.close.cancel();
        let _ = self.serving.await;
    }
}

/// Each replica has a loopback address of its own, so that it finds its ports free again after a restart.
fn plan(id: u64) -> ReplicaPlan {
    let [one, two]: [u8; 2] = rand::random();
    let host = Ipv4Addr::new(127, one, two, u8::try_from(id).unwrap());
    // All probes stay open until all ports are known, or one port could be given twice.
    let probes = [(); 3].map(|()| std::net::TcpListener::bind((host, 0)).unwrap());
    let [peer, agent, client] = probes.each_ref().map(|probe| probe.local_addr().unwrap().to_string().parse().unwrap());
    ReplicaPlan { id, hosts: vec![], peer, agent, client }
}

/// Polls until `condition` holds, for as long as [`PATIENCE`].
pub async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(within(PATIENCE, condition).await, "waited {PATIENCE:?} in vain: {what}");
}

/// Whether `condition` holds at some moment within `patience`.
pub async fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(patience, polling).await.is_ok()
}
