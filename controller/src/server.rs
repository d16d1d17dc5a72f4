//! The server: one replica from start to stop. It opens the store, starts consensus, opens the doors, and closes all of
//! it in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::{Probe, Quiet};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::FleetMember;
use muster_pki::identity::Role;
use muster_pki::tls::{self, ReplicaTls};
use muster_raft::abort::AbortProcess;
use muster_raft::audit::Retired;
use muster_raft::clock::{Clock, SystemClock};
use muster_raft::connector::Connector;
use muster_raft::disk::Disk;
use muster_raft::disk::real::{DiskError, RealDisk};
use muster_raft::feed::Feed;
use muster_raft::formation::FormationError;
use muster_raft::greeting::{PeerIdentity, ProvenReplica};
use muster_raft::level_guard::Outgrown;
use muster_raft::log_store::{NewStore, StoreOwner};
use muster_raft::peer_service::peer_service;
use muster_raft::replica::{Replica, Timing};
use muster_raft::store::{OpenOptions, ReplicaStore, ReplicaStoreError};
use muster_raft::types::Endpoint;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};

use crate::config::{Doors, ServerConfig};
use crate::door::agent;
use crate::door::agent_runtime::AgentRuntime;
use crate::door::certificate_clock::CertificateClock;
use crate::door::connector::TlsConnector;
use crate::door::listener::{BindError, Door, Incoming, Listener, Peer, Tcp};
use crate::door::{DoorKind, door_limits};
use crate::duties::{Duties, Performed};
use crate::enrolment::enrolment_service;
use crate::enrolment::signer::{self, Signer};
use crate::observe::http;
use crate::session::service::agent_service;

pub use crate::duties::Abandoned;
pub use muster_raft::level_guard::Build;

/// How long open calls may take to finish once the doors close.
const DOORS_CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a replica could not start, or had to end.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    ReplicaStore(#[from] ReplicaStoreError),
    #[error("consensus cannot start: {0}")]
    Start(String),
    #[error(transparent)]
    Formation(#[from] FormationError),
    #[error("this replica may not take part: {0}")]
    Refused(muster_lifecycle::rejection::Rejection),
    #[error(transparent)]
    Retired(#[from] Retired),
    #[error(transparent)]
    Outgrown(#[from] Outgrown),
    #[error("consensus stopped: {0}; restart the replica, and if that does not help replace it")]
    Consensus(String),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

/// The outside world of a replica. Tests and simulations bring their own.
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    pub connector: Arc<dyn Connector>,
    pub listeners: Doors<Box<dyn Listener>>,
    pub http: Box<dyn Listener>,
    pub timing: Timing,
    /// The runtime that serves agents.
    pub agent_runtime: Handle,
    /// Observes the supervision tree's actors.
    pub probe: Arc<dyn Probe>,
    /// The build that runs: its version, and the levels it speaks.
    pub build: Build,
    /// Is shown the replica as soon as its consensus runs.
    pub on_start: Box<dyn FnOnce(&Replica) + Send>,
}

/// Runs a replica on this machine's clock, disk and network until `shutdown`.
pub async fn serve(build: Build, config: ServerConfig, shutdown: CancellationToken) -> Result<(), ServeError> {
    let tls = ReplicaTls::load(&config.tls_dir)?;
    let runtime =
        AgentRuntime::start().map_err(|error| ServeError::Start(format!("no threads for agents: {error}")))?;
    let listeners = Doors {
        peer: Box::new(Tcp::bind(DoorKind::Peer, config.listen.peer)?) as Box<dyn Listener>,
        agent: Box::new(Tcp::bind(DoorKind::Agent, config.listen.agent)?),
        client: Box::new(Tcp::bind(DoorKind::Client, config.listen.client)?),
    };
    let connector = TlsConnector::new(Arc::clone(&tls.peer_client), config.fleet.clone());
    let environment = Environment {
        clock: Arc::new(SystemClock),
        disk: RealDisk::open(&config.data_dir)?,
        connector: Arc::new(connector.timed_by(&CertificateClock::default())),
        listeners,
        http: Box::new(Tcp::bind(DoorKind::Http, config.listen.http)?),
        timing: Timing::default(),
        agent_runtime: runtime.handle(),
        probe: Arc::new(Quiet),
        build,
        on_start: Box::new(|_| {}),
    };
    serve_in(environment, config, tls, shutdown).await
}

/// Runs a replica in a given environment until `shutdown`, or until it must not go on.
pub async fn serve_in(
    environment: Environment,
    config: ServerConfig,
    tls: ReplicaTls,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let Environment { clock, disk, connector, listeners, http, timing, agent_runtime, probe, build, on_start } =
        environment;
    let replica = start_replica(&config, Arc::clone(&clock), disk, connector, timing, build).await?;
    on_start(&replica);
    let closing = CancellationToken::new();
    let certificates = CertificateClock::new(Arc::clone(&clock));
    let agent_door = Door::new(DoorKind::Agent, Arc::clone(&tls.agent_server), config.fleet.clone())
        .renewing_within(config.enrolment.grace)
        .timed_by(&certificates);
    let duties = Duties::new(&config, &replica, (clock, certificates), probe, agent_door.handshakes());
    let places = Places { listeners, http, agent_runtime };
    let mut performed = open_doors(&config, &tls, places, agent_door, &duties, &closing);
    duties.perform(&config, &tls, &closing, &mut performed);
    tracing::info!(replica = config.id.0, fleet = %config.fleet, version = build.version, levels = %build.levels, "replica started");
    let ended = tokio::select! {
        // In this order: when consensus stops, leading ends too, and its error says less.
        biased;
        () = shutdown.cancelled() => Ok(()),
        error = take_part(&replica, &config, &shutdown) => Err(error),
        abandoned = performed.abandoned() => Err(abandoned.into()),
    };
    if let Err(error) = &ended {
        tracing::error!(%error, "replica must stop");
    }
    replica.stop().await;
    closing.cancel();
    if tokio::time::timeout(DOORS_CLOSE_TIMEOUT, performed.all_ended()).await.is_err() {
        tracing::info!("some calls did not end in time and were cut");
    }
    tracing::info!(replica = config.id.0, "replica stopped");
    ended
}

async fn start_replica(
    config: &ServerConfig,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    connector: Arc<dyn Connector>,
    timing: Timing,
    build: Build,
) -> Result<Replica, ServeError> {
    let feed = Feed::new(clock);
    let options = OpenOptions {
        disk,
        checkpoint_dir: Some(config.data_dir.join("checkpoint")),
        identity: store_identity(config),
        create: Some(NewStore { store: Uid(rand::random()), generation: 0 }),
        publisher: Arc::clone(&feed) as _,
        abort: Arc::new(AbortProcess),
        build,
    };
    let opened = tokio::task::spawn_blocking(move || ReplicaStore::open(options)).await;
    let store = opened.map_err(|error| ServeError::Start(error.to_string()))??;
    let identity = PeerIdentity { fleet: config.fleet.to_string().into(), id: config.id, store: store.2.store_id };
    let started = Replica::start(identity, store, feed, connector, timing).await;
    started.map_err(|error| ServeError::Start(error.to_string()))
}

/// Completes only when this replica must not go on.
async fn take_part(replica: &Replica, config: &ServerConfig, shutdown: &CancellationToken) -> ServeError {
    let join = async {
        let initial = initial_members(config);
        if let Err(error) = replica.form(&initial, shutdown).await {
            return error.into();
        }
        let announced = async {
            match replica.announce(shutdown).await {
                Ok(()) => std::future::pending().await,
                Err(rejection) => ServeError::Refused(rejection),
            }
        };
        let audited = async {
            match replica.audit(shutdown).await {
                Some(retired) => retired.into(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = announced => error,
            error = audited => error,
        }
    };
    tokio::select! {
        // A replica that its cluster has outgrown stops consensus itself; the reason is the level.
        biased;
        outgrown = replica.outgrown() => outgrown.into(),
        error = join => error,
        reason = replica.failed() => match replica.standing().exclusion() {
            // It stays, to say why it takes no part: ending would only have it started again.
            Some(_) => std::future::pending().await,
            None => ServeError::Consensus(reason),
        },
    }
}

fn initial_members(config: &ServerConfig) -> BTreeMap<ReplicaId, Endpoint> {
    config.initial_members.iter().map(|member| (member.id, endpoint(member))).collect()
}

pub(crate) fn store_identity(config: &ServerConfig) -> StoreOwner {
    StoreOwner { replica: config.id, fleet: Uid(config.fleet.number()) }
}

pub(crate) fn endpoint(member: &FleetMember) -> Endpoint {
    Endpoint { peer: member.peer.to_string(), agent: member.agent.to_string(), client: member.client.to_string() }
}

/// The listeners of the doors, and the runtime that serves agents.
struct Places {
    listeners: Doors<Box<dyn Listener>>,
    http: Box<dyn Listener>,
    agent_runtime: Handle,
}

fn open_doors(
    config: &ServerConfig,
    tls: &ReplicaTls,
    places: Places,
    agent_door: Door,
    duties: &Duties,
    closing: &CancellationToken,
) -> Performed {
    let Places { listeners, http, agent_runtime } = places;
    let door = |kind, tls| Door::new(kind, Arc::clone(tls), config.fleet.clone()).timed_by(&duties.certificates);
    let peers = door(DoorKind::Peer, &tls.peer_server).open(listeners.peer);
    let agents = {
        let _on_agent_threads = agent_runtime.enter();
        agent_door.open(listeners.agent)
    };
    let clients = door(DoorKind::Client, &tls.server).open(listeners.client);
    let browsers = door(DoorKind::Http, &tls.server).open(http);
    let raft = InterceptedService::new(peer_service(duties.replica.clone()), prove_replica);
    let pulse = InterceptedService::new(duties.pulse_service(), prove_replica);
    let router = |kind| door_limits(Server::builder(), kind);
    let peer_router = router(DoorKind::Peer).add_service(raft).add_service(pulse);
    let agent_routes = Routes::new(agent_service(duties.replica.clone(), duties.sessions.clone())).add_service(
        enrolment_service(duties.sessions.writes(), Arc::clone(duties.sessions.figures()), signer(config, tls)),
    );
    let client_router = router(DoorKind::Client).add_service(duties.operator_service());
    let mut doors = Performed::default();
    doors.begin("the peers' door", run_door(DoorKind::Peer, peer_router, peers, closing.clone()));
    doors.begin_on(&agent_runtime, "the agents' door", agent::serve(agents, agent_routes, closing.clone()));
    doors.begin("the clients' door", run_door(DoorKind::Client, client_router, clients, closing.clone()));
    doors.begin("the HTTP door", http::serve(browsers, duties.sources(), closing.clone()));
    doors
}

/// A replica without the CA's key serves everything else, and tells a node that asks it to sign what it lacks.
fn signer(config: &ServerConfig, tls: &ReplicaTls) -> Result<Arc<Signer>, signer::Missing> {
    let signer = Signer::of(tls.authority.as_ref(), &config.tls_dir, &config.fleet, config.enrolment.lifetime);
    if let Err(missing) = &signer {
        tracing::warn!(%missing, "nodes cannot join or renew through this replica");
    }
    signer
}

async fn run_door(
    kind: DoorKind,
    router: tonic::transport::server::Router,
    incoming: Incoming,
    closing: CancellationToken,
) {
    let served = router.serve_with_incoming_shutdown(incoming, closing.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(door = %kind, %error, "door failed");
    }
}

/// Tells the services of the peers' door which replica the certificate belongs to.
pub fn prove_replica(mut request: Request<()>) -> Result<Request<()>, Status> {
    let proven = match request.extensions().get::<Peer>().map(|peer| &peer.identity.kind) {
        Some(Role::Replica(id)) => ProvenReplica(*id),
        _ => return Err(Status::permission_denied("only replicas may speak here")),
    };
    request.extensions_mut().insert(proven);
    Ok(request)
}
