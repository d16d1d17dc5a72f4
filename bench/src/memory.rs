//! Resident memory per node, on the leader and on followers, with nodes as real agents register them.

use anyhow::{Context, Result, ensure};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use tokio::task::JoinSet;

use crate::catalog::OTHER;
use crate::figure::mebibytes;
use crate::node;
use crate::outcome::{Finding, Goal, Outcome};
use crate::setting::Setting;
use crate::table::Table;

const WRITERS: usize = 128;

/// Of a follower that was restarted: what it takes to hold the nodes, without the traces of their coming.
const GOAL: Goal = Goal::at_most(OTHER, 2_048.0);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (cluster, nodes) = (setting.cluster()?, setting.nodes(5_000, 100_000));
    let before = cluster.resident_bytes()?;
    let start = std::time::Instant::now();
    let client = cluster.client()?;
    create(&client, nodes).await?;
    let rate = nodes as f64 / start.elapsed().as_secs_f64();
    let status = client.status().await?;
    ensure!(status.nodes_total == nodes as u64, "{} nodes are there, {nodes} were created", status.nodes_total);
    let leader = status.leader.context("no leader")?;
    let title = format!("{nodes} nodes created one write each at {rate:.0}/s");
    let mut table = Table::new(title, &["replica", "role", "before MiB", "after MiB", "bytes/node"]);
    let loaded = cluster.resident_bytes()?;
    for ((id, before), (_, after)) in before.iter().zip(&loaded) {
        let role = if *id == leader { "leader" } else { "follower" };
        row(&mut table, *id, role, (*before, *after), nodes);
    }
    let follower = before.iter().find(|(id, _)| *id != leader).context("no follower")?;
    cluster.kill(follower.0)?;
    cluster.restart(follower.0)?;
    wait_caught_up(&client).await?;
    let restarted = cluster.resident_bytes()?.into_iter().find(|(id, _)| *id == follower.0).context("no follower")?;
    let per_node = row(&mut table, follower.0, "restarted", (follower.1, restarted.1), nodes);
    let finding = Finding::new("memory", GOAL, "restarted follower", per_node, "bytes/node").with("nodes", nodes);
    Ok(Outcome { findings: vec![finding], tables: vec![table], ..Outcome::default() })
}

/// Adds it to the table, and says how much a node takes.
fn row(table: &mut Table, id: u64, role: &str, (before, after): (u64, u64), nodes: usize) -> f64 {
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    let mib = |bytes: u64| format!("{:.0}", mebibytes(bytes));
    table.row([id.to_string(), role.to_owned(), mib(before), mib(after), format!("{per_node:.0}")]);
    per_node
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
