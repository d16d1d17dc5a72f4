//! Doors that the load connects to: the agents' doors of the replicas, and the certificates that open them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use anyhow::{Context, Result};
use muster_client::Client;
use muster_pki::{FleetFolder, tls};
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use rustls::ClientConfig;

use crate::harness::cluster::BenchCluster;
use crate::load::node;
use crate::load::wire::WireTarget;

const AGGREGATOR: &str = "bench";

/// The agents' doors, by replica.
#[derive(Clone)]
pub(crate) struct AgentDoors {
    doors: Vec<Door>,
    fleet: Arc<FleetFolder>,
    tls: Arc<ClientConfig>,
}

#[derive(Debug, Clone)]
struct Door {
    replica: u64,
    host: String,
    address: SocketAddr,
}

// === impl AgentDoors ===

impl AgentDoors {
    /// Opens them with the certificate of an aggregator that may carry all nodes of the load.
    pub(crate) async fn open(cluster: &BenchCluster, client: &Client) -> Result<Self> {
        let scope = v1::AggregatorScope { name: AGGREGATOR.to_owned(), nodes: vec![format!("{}*", node::PREFIX)] };
        client.write(Operation::Aggregator(scope)).await?;
        let fleet = cluster.fleet()?;
        let issued = fleet.issue_aggregator(AGGREGATOR)?;
        let tls = tls::agent(fleet.client_authority().certificate_pem(), &issued.certificate, &issued.key)?;
        let doors = fleet.replicas().iter().map(|plan| {
            let place = plan.agent.to_string();
            let address = place.to_socket_addrs()?.next().with_context(|| format!("{place} has no address"))?;
            let host = place.rsplit_once(':').map_or(place.as_str(), |(host, _)| host).to_owned();
            Ok(Door { replica: plan.id.0, host, address })
        });
        Ok(Self { doors: doors.collect::<Result<_>>()?, fleet: Arc::new(fleet), tls })
    }

    pub(crate) fn count(&self) -> usize {
        self.doors.len()
    }

    /// The replica behind the `number`th door; after the last comes the first again.
    pub(crate) fn replica(&self, number: usize) -> u64 {
        self.doors[number % self.doors.len()].replica
    }

    /// Connects to the `number`th door as the aggregator.
    pub(crate) fn target(&self, number: usize) -> Result<WireTarget> {
        self.target_with(number, Arc::clone(&self.tls))
    }

    /// A node's certificate, as its agent shows it at the doors.
    pub(crate) fn identity(&self, node: &str) -> Result<Arc<ClientConfig>> {
        let issued = self.fleet.issue_node(node)?;
        Ok(tls::agent(self.fleet.client_authority().certificate_pem(), &issued.certificate, &issued.key)?)
    }

    /// Connects to the `number`th door with another certificate.
    pub(crate) fn target_with(&self, number: usize, tls: Arc<ClientConfig>) -> Result<WireTarget> {
        let door = &self.doors[number % self.doors.len()];
        WireTarget::new(door.address, &door.host, tls)
    }
}
