//! The members of a test cluster: where each replica listens, the certificates of all, and clients that ask them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_checker::consensus::ConsensusWatch;
use muster_client::Client;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{ClientConfig, FleetFolder, ReplicaPlan, tls};
use muster_raft::types::Endpoint;
use rustls::ClientConfig as TlsConfig;
use tempfile::TempDir;

/// The port of the peers' door; the others follow. It lies below the ports that the kernel assigns.
const PORT: u16 = 17_400;
/// For one question to one replica, which may be cut off and unable to answer.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// A fleet's folder, removed when this goes.
pub struct Members {
    _dir: TempDir,
    pub fleet: FleetFolder,
    /// Sees every replica that is a task of the test, and fails the test if they break a promise of consensus.
    pub consensus: ConsensusWatch,
}

// === impl Members ===

impl Members {
    /// Each replica gets a loopback address of its own, so that tests side by side do not take each other's ports,
    /// and a replica finds its ports free again after a restart.
    pub fn on_loopback(ids: &[u64]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plans: Vec<_> = ids.iter().map(|id| on_loopback(*id)).collect();
        let fleet = FleetFolder::create(dir.path(), &plans).unwrap();
        Self { _dir: dir, fleet, consensus: ConsensusWatch::default() }
    }

    pub fn plan(&self, id: u64) -> &ReplicaPlan {
        self.fleet.replicas().iter().find(|plan| plan.id == ReplicaId(id)).expect("it is planned")
    }

    /// The addresses of each replica, as replicas tell each other.
    pub fn endpoints(&self) -> BTreeMap<ReplicaId, Endpoint> {
        let endpoint = |plan: &ReplicaPlan| Endpoint {
            peer: plan.peer.to_string(),
            agent: plan.agent.to_string(),
            client: plan.client.to_string(),
        };
        self.fleet.replicas().iter().map(|plan| (plan.id, endpoint(plan))).collect()
    }

    pub fn agent_doors(&self) -> Vec<String> {
        self.fleet.replicas().iter().map(|plan| plan.agent.to_string()).collect()
    }

    pub fn node_tls(&self, name: &str) -> Arc<TlsConfig> {
        let issued = self.fleet.issue_node(name).unwrap();
        tls::agent(self.fleet.client_authority().certificate_pem(), &issued.certificate, &issued.key).unwrap()
    }

    pub fn client_config(&self) -> ClientConfig {
        operator_config(&self.fleet.operator_dir())
    }

    /// An operator's client, which asks any replica.
    pub fn client(&self) -> Client {
        Client::new(self.client_config()).unwrap()
    }

    /// A client that asks this replica and no other.
    pub fn client_of(&self, id: u64) -> Client {
        let endpoints = vec![self.plan(id).client.clone()];
        Client::new(ClientConfig { endpoints, ..self.client_config() }).unwrap().with_timeout(ANSWER_PATIENCE)
    }
}

/// The configuration in an operator's folder.
pub fn operator_config(dir: &Path) -> ClientConfig {
    ClientConfig::load(&dir.join("client.toml")).unwrap()
}

fn on_loopback(id: u64) -> ReplicaPlan {
    let [one, two]: [u8; 2] = rand::random();
    let host = Ipv4Addr::new(127, one, two, u8::try_from(id).unwrap());
    let door = |port: u16| format!("{host}:{port}").parse().unwrap();
    ReplicaPlan { id: ReplicaId(id), hosts: vec![], peer: door(PORT), agent: door(PORT + 1), client: door(PORT + 2) }
}
