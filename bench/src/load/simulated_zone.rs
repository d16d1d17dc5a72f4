//! A simulated zone: all its nodes on one aggregator of `node-agent`, which reports pods as running and runs none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muster_client::Client;
use muster_node_agent::aggregator::{AggregatedNode, AggregatorConfig, AggregatorHandle, AggregatorSession};
use muster_node_agent::simulated::SimulatedMachine;
use muster_pki::tls;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;

use crate::harness::cluster::BenchCluster;

const REGION: &str = "bench";
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Addresses per zone, so that machines of different zones have different ones.
const NUMBERS_PER_ZONE: usize = 1 << 20;

/// A zone whose nodes beat. Dropping it cuts the connection without notice.
#[derive(Debug)]
pub struct SimulatedZone(#[expect(dead_code, reason = "held so that the nodes go on beating")] AggregatorHandle);

// === impl SimulatedZone ===

impl SimulatedZone {
    pub async fn start(cluster: &BenchCluster, client: &Client, zone: usize, nodes: usize) -> Result<Self> {
        let aggregator = format!("aggregator-{}", name(zone));
        let scope = v1::AggregatorScope { name: aggregator.clone(), nodes: vec![format!("{}*", prefix(zone))] };
        client.write(Operation::Aggregator(scope)).await?;
        let fleet = cluster.fleet()?;
        let issued = fleet.issue_aggregator(&aggregator)?;
        let config = AggregatorConfig {
            endpoints: fleet.replicas().iter().map(|plan| plan.agent.to_string()).collect(),
            tls: tls::agent(fleet.client_authority().certificate_pem(), &issued.certificate, &issued.key)?,
            instance: rand::random(),
            version: "bench".to_owned(),
        };
        let nodes = (0..nodes).map(|number| carried(zone, number)).collect();
        Ok(Self(AggregatorSession::start(config, nodes)?))
    }
}

/// The zone's label.
pub(crate) fn name(zone: usize) -> String {
    format!("z{zone}")
}

/// Prefix of the names of the zone's nodes.
pub(crate) fn prefix(zone: usize) -> String {
    format!("node-{}-", name(zone))
}

fn carried(zone: usize, number: usize) -> AggregatedNode {
    let node = format!("{}{number:05}", prefix(zone));
    let address = u32::try_from(zone * NUMBERS_PER_ZONE + number).unwrap_or(u32::MAX);
    let machine = SimulatedMachine::new(&node, REGION, &name(zone), address);
    AggregatedNode { name: node, machine: Arc::new(machine) }
}

pub async fn wait_ready(client: &Client, nodes: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let status = client.status().await?;
        if status.nodes_ready == nodes as u64 {
            return Ok(());
        }
        if start.elapsed() > READY_TIMEOUT {
            bail!("{} of {nodes} nodes are ready after {} s", status.nodes_ready, READY_TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
