//! `memory`: resident memory per node of the leader and of followers, with nodes as real agents register them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use tokio::task::JoinSet;

use crate::harness::cluster::wait_caught_up;
use crate::harness::options::BenchOptions;
use crate::harness::wait;
use crate::load::node;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::number::mebibytes;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const WRITERS: usize = 128;
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);

/// The goal for a follower that was restarted: the memory to hold the nodes, without the garbage of registering them.
const GOAL: Goal = Goal::at_most(OTHER, 2_048.0);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (cluster, nodes) = (options.cluster()?, options.nodes(5_000, 100_000));
    let before = cluster.resident_bytes()?;
    let start = Instant::now();
    let client = cluster.client()?;
    create(&client, nodes).await?;
    let rate = nodes as f64 / start.elapsed().as_secs_f64();
    let status = client.status().await?;
    ensure!(status.nodes_total == nodes as u64, "{} nodes exist, {nodes} were created", status.nodes_total);
    let leader = status.leader.context("no leader")?;
    let title = format!("{nodes} nodes created one write each at {rate:.0}/s");
    let mut table = ReportTable::new(title, &["replica", "role", "before MiB", "after MiB", "bytes/node"]);
    let loaded = cluster.resident_bytes()?;
    for ((id, before), after) in before.iter().zip(loaded.values()) {
        let role = if *id == leader { "leader" } else { "follower" };
        row(&mut table, *id, role, (*before, *after), nodes);
    }
    let (follower, idle) = before.iter().find(|(id, _)| **id != leader).context("no follower")?;
    cluster.kill(*follower)?;
    cluster.restart(*follower)?;
    wait_caught_up(&client, wait::limit(CATCH_UP_TIMEOUT, nodes)).await?;
    let restarted = cluster.resident_bytes()?.get(follower).copied().context("no follower")?;
    let per_node = row(&mut table, *follower, "restarted", (*idle, restarted), nodes);
    let figure = Figure::new("memory", GOAL, "restarted follower", per_node, "bytes/node").with("nodes", nodes);
    Ok(ScenarioOutcome { figures: vec![figure], tables: vec![table], ..ScenarioOutcome::default() })
}

/// Adds a row to the table, and returns the bytes per node.
fn row(table: &mut ReportTable, id: u64, role: &str, (before, after): (u64, u64), nodes: usize) -> f64 {
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    let mib = |bytes: u64| format!("{:.0}", mebibytes(bytes));
    table.row([id.to_string(), role.to_owned(), mib(before), mib(after), format!("{per_node:.0}")]);
    per_node
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
