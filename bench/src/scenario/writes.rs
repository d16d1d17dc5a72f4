//! `writes`: committed writes per second. Every client changes a label of a node of its own, one write at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use muster_client::Client;
use tokio::task::JoinSet;

use crate::harness::cluster::BenchCluster;
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::load::node;
use crate::measure::latency::Latencies;
use crate::measure::usage::UsageMeter;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const CLIENTS: [(usize, &str); 3] = [(1, "1 client"), (16, "16 clients"), (256, "256 clients")];

/// The goal for the largest number of clients.
const GOAL: Goal = Goal::at_least(OTHER, 5_000.0);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (cluster, duration) = (options.cluster()?, options.duration(2, 10));
    let seconds = duration.as_secs();
    let title = format!("committed writes on three replicas, {seconds} s each, load generator on the same machine");
    let mut table = ReportTable::new(title, &["clients", "writes/s", "p50 ms", "p99 ms", "max ms"]);
    let mut figures = Vec::new();
    let meter = UsageMeter::start(&cluster.labelled_processes()?);
    for (clients, what) in CLIENTS {
        progress::print(format_args!("{what}, {seconds} s"));
        let (latencies, elapsed) = measure(&cluster, clients, duration).await?;
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        let [p50, p99, max] = latencies.spread_ms();
        table.row([
            clients.to_string(),
            grouped(rate.round()),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            format!("{max:.2}"),
        ]);
        let goal = if CLIENTS.last() == Some(&(clients, what)) { GOAL } else { Goal::NONE };
        let figure = Figure::new("writes", goal, what, rate, "writes/s");
        figures.push(figure.with("clients", clients).with("p50_ms", p50).with("p99_ms", p99).with("max_ms", max));
    }
    let usage = meter.stop();
    let tables = vec![table, usage.table()];
    Ok(ScenarioOutcome {
        figures,
        tables,
        timeline: MeasuredTimeline { series: usage.series },
        ..ScenarioOutcome::default()
    })
}

async fn measure(cluster: &BenchCluster, clients: usize, duration: Duration) -> Result<(Latencies, Duration)> {
    // Many writers share a few connections, as behind a busy gateway.
    let connections: Vec<Client> = (0..clients.min(16)).map(|_| cluster.client()).collect::<Result<_>>()?;
    let mut writers = JoinSet::new();
    for number in 0..clients {
        let client = connections[number % connections.len()].sibling();
        client.write(node::apply(number)).await?;
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
        let written = client.write(node::set_label(number, "round", format!("r{}", samples.len()))).await?;
        samples.push(asked.elapsed());
        ensure!(written.revision > last_revision, "a write did not raise the revision");
        last_revision = written.revision;
    }
    Ok(samples)
}
