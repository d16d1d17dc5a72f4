//! The parts of a replica one by one: consensus on a simulated disk, exchange of heartbeats, TLS doors. A test that is
//! about some of them starts these and leaves out the rest.

use std::sync::Arc;
use std::time::Duration;

use muster_controller::door::connector::TlsConnector;
use muster_controller::door::handshakes::Handshakes;
use muster_controller::door::listener::{Door, Incoming, Tcp};
use muster_controller::door::{DoorKind, door_limits};
use muster_controller::hearing::contact::Contact;
use muster_controller::hearing::service::{Claims, Explains, pulse_service};
use muster_controller::hearing::{Hearing, exchange};
use muster_controller::server::prove_replica;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::tls::ReplicaTls;
use muster_raft::abort::RecordAbort;
use muster_raft::clock::{Clock, SystemClock};
use muster_raft::connector::Connector;
use muster_raft::disk::sim::SimDisk;
use muster_raft::feed::Feed;
use muster_raft::greeting::PeerIdentity;
use muster_raft::log_store::{NewStore, StoreOwner};
use muster_raft::peer_service::peer_service;
use muster_raft::replica::{Replica, Timing};
use muster_raft::store::{OpenOptions, ReplicaStore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use crate::members::Members;

/// An agent's longest pause between two attempts to connect.
pub const BACKOFF_CAP: Duration = Duration::from_secs(10);
const TIMING: Timing = Timing { heartbeat_ms: 100, election_min_ms: 300, election_max_ms: 600, ..Timing::DEFAULT };

/// A replica that takes part in consensus and hears its peers' heartbeats. It has no controller and no doors yet.
pub struct Parts {
    pub id: ReplicaId,
    pub replica: Replica,
    pub hearing: Hearing,
    pub contact: Contact,
    pub stop: CancellationToken,
}

/// What a replica's parts are started with.
pub struct PartsOptions {
    pub disk: SimDisk,
    pub connector: Arc<dyn Connector>,
    /// The clock of cluster time.
    pub clock: Arc<dyn Clock>,
    pub backoff_cap: Duration,
}

// === impl Members ===

impl Members {
    pub fn tls(&self, id: ReplicaId) -> ReplicaTls {
        ReplicaTls::load(&self.fleet.replica_dir(id.0).join("tls")).unwrap()
    }

    /// Connects replica `id` to its peers.
    pub fn connector(&self, id: ReplicaId) -> TlsConnector {
        TlsConnector::new(self.tls(id).peer_client, self.fleet.id().clone())
    }

    /// A door of replica `id` and the address at which it opens.
    pub fn listen(&self, kind: DoorKind, id: ReplicaId, prepare: impl FnOnce(Door) -> Door) -> Incoming {
        let (plan, tls) = (self.plan(id.0), self.tls(id));
        let (address, tls) = match kind {
            DoorKind::Peer => (plan.peer.listen(), tls.peer_server),
            DoorKind::Agent | DoorKind::Client | DoorKind::Http => (plan.agent.listen(), tls.agent_server),
        };
        prepare(Door::new(kind, tls, self.fleet.id().clone())).open(Tcp::bind(kind, address).unwrap())
    }

    /// Starts consensus and the exchange of heartbeats. The replica remembers no beat from an earlier run.
    pub async fn start_parts(&self, id: ReplicaId, options: PartsOptions) -> Parts {
        let feed = Feed::new(options.clock);
        let replica = self.start_consensus(id, &options.disk, &feed, options.connector).await;
        let clock = Arc::new(SystemClock);
        let hearing = Hearing::new(id, options.backoff_cap, clock, feed, Handshakes::default());
        let (contact, stop) = (Contact::new(hearing.clone()), CancellationToken::new());
        tokio::spawn(exchange::run(hearing.clone(), replica.clone(), Arc::default(), stop.clone()));
        tokio::spawn(contact.clone().run(replica.clone(), stop.clone()));
        Parts { id, replica, hearing, contact, stop }
    }

    /// Opens the peers' door and joins the cluster.
    pub fn join(&self, parts: &Parts, claims: Arc<dyn Claims>, explains: Arc<dyn Explains>) -> JoinHandle<()> {
        let pulses = pulse_service(parts.replica.clone(), parts.hearing.clone(), claims, explains);
        let router = door_limits(Server::builder(), DoorKind::Peer)
            .add_service(InterceptedService::new(peer_service(parts.replica.clone()), prove_replica))
            .add_service(InterceptedService::new(pulses, prove_replica));
        let incoming = self.listen(DoorKind::Peer, parts.id, |door| door);
        let closed = parts.stop.clone().cancelled_owned();
        let door = tokio::spawn(async move { router.serve_with_incoming_shutdown(incoming, closed).await.unwrap() });
        let (replica, members, stop) = (parts.replica.clone(), self.endpoints(), parts.stop.clone());
        tokio::spawn(async move {
            replica.form(&members, &stop).await.expect("the cluster forms");
            let _ = replica.announce(&stop).await;
        });
        door
    }

    async fn start_consensus(
        &self,
        id: ReplicaId,
        disk: &SimDisk,
        feed: &Arc<Feed>,
        connector: Arc<dyn Connector>,
    ) -> Replica {
        let store = ReplicaStore::open(OpenOptions {
            disk: disk.mount(),
            checkpoint_dir: None,
            identity: StoreOwner { replica: id, fleet: Uid(7) },
            create: Some(NewStore { store: Uid(rand::random()), generation: 0 }),
            publisher: Arc::clone(feed) as _,
            abort: Arc::new(RecordAbort::default()),
        })
        .expect("the store opens");
        let identity = PeerIdentity { fleet: self.fleet.id().to_string().into(), id, store: store.2.store_id };
        let started = Replica::start(identity, store, Arc::clone(feed), connector, TIMING, "test").await;
        started.expect("consensus starts")
    }
}

// === impl Parts ===

impl Parts {
    /// Ends the replica as a crash would.
    pub async fn kill(&self) {
        self.stop.cancel();
        self.replica.kill().await;
    }
}
