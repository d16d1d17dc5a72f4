//! Resident memory per node, on the leader and on followers, with nodes as real agents register them.

use anyhow::{Context, Result, ensure};
use muster_controller::client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::node;

const WRITERS: usize = 128;

pub async fn run(cluster: &Cluster, nodes: usize) -> Result<()> {
    let before = cluster.resident_bytes()?;
    let start = std::time::Instant::now();
    let client = cluster.client()?;
    create(&client, nodes).await?;
    let rate = nodes as f64 / start.elapsed().as_secs_f64();
    let status = client.status().await?;
    ensure!(status.nodes_total == nodes as u64, "{} nodes are there, {nodes} were created", status.nodes_total);
    let leader = status.leader.context("no leader")?;
    println!("{nodes} nodes created one write each at {rate:.0}/s");
    println!("{:>8} {:>9} {:>12} {:>12} {:>12}", "REPLICA", "ROLE", "BEFORE MIB", "AFTER MIB", "BYTES/NODE");
    let loaded = cluster.resident_bytes()?;
    for ((id, before), (_, after)) in before.iter().zip(&loaded) {
        let role = if *id == leader { "leader" } else { "follower" };
        row(*id, role, *before, *after, nodes);
    }
    let follower = before.iter().find(|(id, _)| *id != leader).context("no follower")?;
    cluster.kill(follower.0)?;
    cluster.restart(follower.0)?;
    wait_caught_up(&client).await?;
    let restarted = cluster.resident_bytes()?.into_iter().find(|(id, _)| *id == follower.0).context("no follower")?;
    row(follower.0, "restarted", follower.1, restarted.1, nodes);
    Ok(())
}

fn row(id: u64, role: &str, before: u64, after: u64, nodes: usize) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    println!("{id:>8} {role:>9} {:>12.0} {:>12.0} {per_node:>12.0}", mib(before), mib(after));
}

async fn wait_caught_up(client: &Client) -> Result<()> {
    loop {
        let status = client.status().await?;
        if status.replicas.iter().all(|replica| replica.reachable && replica.applied >= status.applied) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn create(client: &Client, nodes: usize) -> Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = client.sibling();
        writers.spawn(async move {
            for number in (writer..nodes).step_by(WRITERS) {
                let object = node::manifest(number).into();
                client.write(Operation::Create(v1::ManifestWrite { object })).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}
