//! Replicas in one process with real TLS doors for peers and agents on loopback, and simulated disks.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use muster_controller::door::{DoorKind, agent};
use muster_controller::enrolment::enrolment_service;
use muster_controller::enrolment::signer::Signer;
use muster_controller::hearing::service::Explains;
use muster_controller::session::Sessions;
use muster_controller::session::service::agent_service;
use muster_lifecycle::command::{
    Command, Operation, OperatorOperation, Origin, Outcome, Precondition, Receipt, RequestId,
};
use muster_lifecycle::node::Node;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::WallTime;
use muster_pki::{FleetFolder, ReplicaPlan};
use muster_raft::clock::{Clock, SystemClock};
use muster_raft::disk::sim::SimDisk;
use muster_raft::replica::Replica;
use muster_testing::members::Members;
use muster_testing::parts::{BACKOFF_CAP, Parts, PartsOptions};
pub use muster_testing::waiting::{PATIENCE, until};
use tokio::time::Instant;
use tonic::Status;
use tonic::service::Routes;

pub const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
pub const RENEWAL_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

pub struct Cluster {
    pub members: Members,
    pub running: BTreeMap<ReplicaId, Running>,
    pub clock: Arc<Shifted>,
}

/// The clock of cluster time, which a test can put forward.
#[derive(Default)]
pub struct Shifted(AtomicU64);

pub struct Running {
    pub parts: Parts,
    pub sessions: Sessions,
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
        let members = Members::on_loopback(&ids.iter().map(|id| id.0).collect::<Vec<_>>());
        prepare(&members.fleet);
        let mut cluster = Self { members, running: BTreeMap::new(), clock: Arc::default() };
        for id in ids {
            cluster.boot(*id).await;
        }
        until("all replicas are in contact with a leader and announced", || {
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
        let options = PartsOptions {
            disk: SimDisk::new(),
            connector: Arc::new(self.members.connector(id)),
            clock: Arc::clone(&self.clock) as _,
            backoff_cap: BACKOFF_CAP,
        };
        let parts = self.members.start_parts(id, options).await;
        let sessions = Sessions::new(parts.replica.clone(), parts.hearing.clone(), parts.contact.clone());
        self.members.join(&parts, sessions.claims(), Arc::new(Speechless));
        self.open_agent_door(&parts, &sessions);
        tokio::spawn(sessions.clone().run(parts.stop.clone()));
        self.running.insert(id, Running { parts, sessions });
    }

    /// Ends a replica as a crash would.
    pub async fn stop(&mut self, id: ReplicaId) {
        self.running.remove(&id).expect("it runs").kill().await;
    }

    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.running[&id].replica
    }

    pub async fn leader(&self) -> ReplicaId {
        let mut leader = None;
        until("one of those that run leads", || {
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

    pub async fn operate(&self, operation: OperatorOperation) -> Receipt {
        self.write(Origin::Operator { user: "ada".into() }, operation).await
    }

    pub async fn write(&self, origin: Origin, operation: impl Into<Operation>) -> Receipt {
        let request = Some(RequestId { client: rand::random(), sequence: 1 });
        let command = Command { origin, request, operation: operation.into() };
        let replica = self.running.values().next().unwrap().replica.clone();
        let settled = replica.write(command, Instant::now() + PATIENCE).await.unwrap();
        match settled.outcome {
            Outcome::Done(receipt) => receipt,
            Outcome::Rejected(rejection) => panic!("{rejection}"),
        }
    }

    pub async fn delete(&self, name: &str) -> Receipt {
        self.operate(OperatorOperation::DeleteNode { name: name.into(), precondition: Precondition::default() }).await
    }

    pub fn plan(&self, id: ReplicaId) -> &ReplicaPlan {
        self.members.plan(id.0)
    }

    fn open_agent_door(&self, parts: &Parts, sessions: &Sessions) {
        let (id, fleet) = (parts.id, &self.members.fleet);
        let dir = fleet.replica_dir(id).join("tls");
        let signer = Signer::of(self.members.tls(id).authority.as_ref(), &dir, fleet.id(), LIFETIME);
        let routes = Routes::new(agent_service(parts.replica.clone(), sessions.clone()))
            .add_service(enrolment_service(sessions.writes(), Arc::clone(sessions.figures()), signer));
        let incoming = self.members.listen(DoorKind::Agent, id, |door| door.renewing_within(RENEWAL_GRACE));
        tokio::spawn(agent::serve(incoming, routes, parts.stop.clone()));
    }
}

// === impl Running ===

impl Deref for Running {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}
