//! Replicas in one process, each with real TLS doors for its peers and its agents on loopback, and simulated disks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_controller::door::connector::TlsConnector;
use muster_controller::door::{DoorKind, agent};
use muster_controller::hearing::Hearing;
use muster_controller::hearing::canary::Canary;
use muster_controller::hearing::service::{Claims, Explains};
use muster_controller::session::Sessions;
use muster_controller::session::service::agent_service;
use muster_lifecycle::command::{Command, OperatorOperation, Origin, Outcome};
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_pulse::excuse::{BlindnessCause, InForce};
use muster_raft::clock::SystemClock;
use muster_raft::disk::sim::SimDisk;
use muster_testing::members::Members;
use muster_testing::parts::{BACKOFF_CAP, Parts, PartsOptions};
pub use muster_testing::waiting::{PATIENCE, until, within};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;

use crate::slow_line::SlowConnector;

/// So fast that it delays nothing.
const FAST_LINE: usize = 1 << 30;

pub struct Cluster {
    pub members: Members,
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
    pub parts: Parts,
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
        let answer = |_| v1::ClaimAnswer { held_by: format!("asked by {from}"), unsettled: false };
        let answers = request.claims.iter().map(answer).collect();
        Ok(v1::ClaimResponse { answers, ..v1::ClaimResponse::default() })
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
        let members = Members::on_loopback(&ids.iter().map(|id| id.0).collect::<Vec<_>>());
        let disks = ids.iter().map(|id| (*id, SimDisk::new())).collect();
        let mut cluster = Self { members, disks, terms, running: BTreeMap::new() };
        for id in ids {
            cluster.boot(*id).await;
        }
        until("a leader is known to all", || cluster.running.values().all(|one| one.replica.leader().is_some())).await;
        cluster
    }

    /// Starts a replica from its disk; it remembers no beat from an earlier run.
    pub async fn boot(&mut self, id: ReplicaId) {
        let Terms { backoff_cap, bytes_per_second } = self.terms;
        let connector = Arc::new(SlowConnector { inner: self.members.connector(id), bytes_per_second });
        let disk = self.disks[&id].clone();
        let options = PartsOptions { disk, connector, clock: Arc::new(SystemClock), backoff_cap };
        let parts = self.members.start_parts(id, options).await;
        let peer_door = self.members.join(&parts, Arc::new(Answers), Arc::new(Answers));
        self.running.insert(id, Running { parts, peer_door });
    }

    /// Ends a replica: its door closes and it pulls from no peer.
    pub async fn stop(&mut self, id: ReplicaId) {
        let running = self.running.remove(&id).expect("it runs");
        running.kill().await;
        let _ = running.peer_door.await;
    }

    /// Changes settings of the policy, through the present leader.
    pub async fn set_policy(&self, changes: &[(&str, &str)]) {
        let changes = changes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let origin = Origin::Operator { user: "alice".into() };
        let command = Command { origin, request: None, operation: OperatorOperation::SetPolicy { changes }.into() };
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
    pub fn excuse(&self, id: ReplicaId, cause: BlindnessCause) -> Option<InForce> {
        let hearing = self.hearing(id);
        let blindness = hearing.pulses().blindness();
        blindness.in_force(hearing.tick()).find(|in_force| in_force.cause == cause)
    }

    /// Whether replica `id` is blind in this way right now, rather than only excusing nodes because it was.
    pub fn is_blind(&self, id: ReplicaId, cause: BlindnessCause) -> bool {
        self.excuse(id, cause).is_some_and(|in_force| in_force.ended.is_none())
    }

    pub fn agent_address(&self, id: ReplicaId) -> SocketAddr {
        self.members.plan(id.0).agent.listen()
    }

    pub fn open_agent_door(&self, id: ReplicaId) -> AgentDoor {
        let close = CancellationToken::new();
        let Parts { replica, hearing, contact, .. } = &self.running[&id].parts;
        let sessions = Sessions::new(replica.clone(), hearing.clone(), contact.clone());
        let routes = Routes::new(agent_service(replica.clone(), sessions));
        let serving =
            tokio::spawn(agent::serve(self.members.listen(DoorKind::Agent, id, |door| door), routes, close.clone()));
        AgentDoor { close, serving }
    }

    /// Starts the canary of replica `id`, which ends with it.
    pub fn start_canary(&self, id: ReplicaId) {
        let running = &self.running[&id];
        let connector = Arc::new(TlsConnector::new(self.members.tls(id).canary, self.members.fleet.id().clone()));
        let canary = Canary::new(running.hearing.clone(), connector, self.members.plan(id.0).agent.clone());
        tokio::spawn(canary.run(running.stop.clone()));
    }
}

// === impl Running ===

impl Deref for Running {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
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
