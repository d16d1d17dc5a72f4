//! Committed writes per second: every client changes a label of a node of its own, one write at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use tokio::task::JoinSet;

use crate::catalog::OTHER;
use crate::cluster::Cluster;
use crate::figure::grouped;
use crate::latency::Latencies;
use crate::node;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress::say;
use crate::setting::Setting;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::Meter;

const CLIENTS: [(usize, &str); 3] = [(1, "1 client"), (16, "16 clients"), (256, "256 clients")];

/// Held against what most clients reach.
const GOAL: Goal = Goal::at_least(OTHER, 5_000.0);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (cluster, duration) = (setting.cluster()?, setting.duration(2, 10));
    let seconds = duration.as_secs();
    let title = format!("committed writes on three replicas, {seconds} s each, load generator on the same machine");
    let mut table = Table::new(title, &["clients", "writes/s", "p50 ms", "p99 ms", "max ms"]);
    let mut findings = Vec::new();
    let meter = Meter::start(&cluster.labelled_processes()?);
    for (clients, what) in CLIENTS {
        say(format_args!("{what}, {seconds} s"));
        let (latencies, elapsed) = measure(&cluster, clients, duration).await?;
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        let [p50, p99, max] = [50, 99, 100].map(|percent| latencies.percentile_ms(percent));
        table.row([
            clients.to_string(),
            grouped(rate.round()),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            format!("{max:.2}"),
        ]);
        let goal = if CLIENTS.last() == Some(&(clients, what)) { GOAL } else { Goal::NONE };
        let finding = Finding::new("writes", goal, what, rate, "writes/s");
        findings.push(finding.with("clients", clients).with("p50_ms", p50).with("p99_ms", p99).with("max_ms", max));
    }
    let usage = meter.stop();
    let tables = vec![table, usage.table()];
    Ok(Outcome { findings, tables, timeline: Timeline { series: usage.series }, ..Outcome::default() })
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

/// Gives a node of the load another label.
pub(crate) fn label(number: usize, round: usize) -> Operation {
    Operation::Label(v1::PairsEdit {
        name: format!("node-{number:07}"),
        set: [("round".to_owned(), format!("r{round}"))].into(),
        overwrite: true,
        ..v1::PairsEdit::default()
    })
}
