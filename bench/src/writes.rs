//! Committed writes per second: every client changes a label of a node of its own, one write at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use muster_controller::client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::latency::Latencies;
use crate::node;

const CLIENTS: [usize; 3] = [1, 16, 256];

pub async fn run(cluster: &Cluster, duration: Duration) -> Result<()> {
    println!("committed writes on three replicas, {} s each, load generator on the same machine", duration.as_secs());
    println!("{:>8} {:>12} {:>10} {:>10} {:>10}", "CLIENTS", "WRITES/S", "P50 MS", "P99 MS", "MAX MS");
    for clients in CLIENTS {
        let (latencies, elapsed) = measure(cluster, clients, duration).await?;
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        let [p50, p99, max] = [50, 99, 100].map(|percent| latencies.percentile_ms(percent));
        println!("{clients:>8} {rate:>12.0} {p50:>10.2} {p99:>10.2} {max:>10.2}");
    }
    Ok(())
}

async fn measure(cluster: &Cluster, clients: usize, duration: Duration) -> Result<(Latencies, Duration)> {
    // A few connections shared by many writers, as a busy gateway would have.
    let connections: Vec<Client> = (0..clients.min(16)).map(|_| cluster.client()).collect::<Result<_>>()?;
    let mut writers = JoinSet::new();
    for number in 0..clients {
        let client = connections[number % connections.len()].sibling();
        client.write(apply(number)).await?;
        writers.spawn(write_for(client, number, duration));
    }
    let start = Instant::now();
    let mut samples = Vec::new();
    while let Some(written) = writers.join_next().await {
        samples.extend(written??);
    }
    Ok((samples.into_iter().collect(), start.elapsed()))
}

async fn write_for(client: Client, number: usize, duration: Duration) -> Result<Vec<Duration>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    let mut last_revision = 0;
    while start.elapsed() < duration {
        let asked = Instant::now();
        let written = client.write(label(number, samples.len())).await?;
        samples.push(asked.elapsed());
        ensure!(written.revision > last_revision, "a write changed nothing");
        last_revision = written.revision;
    }
    Ok(samples)
}

fn apply(number: usize) -> Operation {
    Operation::Apply(v1::ManifestWrite { object: node::manifest(number).into() })
}

fn label(number: usize, round: usize) -> Operation {
    Operation::Label(v1::PairsEdit {
        name: format!("node-{number:07}"),
        set: [("round".to_owned(), format!("r{round}"))].into(),
        overwrite: true,
        ..v1::PairsEdit::default()
    })
}
