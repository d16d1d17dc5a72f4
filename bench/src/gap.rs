//! How long writes pause when the leader is killed: from the kill to the first write acknowledged after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;

use crate::catalog::OTHER;
use crate::cluster::Cluster;
use crate::latency::Latencies;
use crate::node;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress::say;
use crate::setting::Setting;
use crate::table::Table;

const GOAL: Goal = Goal::at_most(OTHER, 3_000.0);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (cluster, kills) = (setting.cluster()?, setting.kills.unwrap_or(setting.scale.pick(2, 20)));
    let client = cluster.client()?.with_timeout(Duration::from_secs(30));
    client.write(Operation::Apply(v1::ManifestWrite { object: node::manifest(0).into() })).await?;
    let mut gaps = Vec::new();
    for kill in 1..=kills {
        let gap = one_kill(&cluster, &client, kill).await?;
        say(format_args!("kill {kill:>2}: {:>6.0} ms", gap.as_secs_f64() * 1_000.0));
        gaps.push(gap);
    }
    let gaps: Latencies = gaps.into_iter().collect();
    let (p50, max) = (gaps.percentile_ms(50), gaps.percentile_ms(100));
    let mut table = Table::new("write gap after kill -9 of the leader, one writer", &["kills", "p50 ms", "max ms"]);
    table.row([kills.to_string(), format!("{p50:.0}"), format!("{max:.0}")]);
    let finding = Finding::new("gap", GOAL, "longest", max, "ms").with("kills", kills).with("p50_ms", p50);
    Ok(Outcome { findings: vec![finding], tables: vec![table], ..Outcome::default() })
}

async fn one_kill(cluster: &Cluster, client: &Client, kill: usize) -> Result<Duration> {
    let leader = client.status().await?.leader.context("no leader")?;
    for round in 0..20 {
        client.write(cordon(round % 2 == 0)).await?;
    }
    cluster.kill(leader)?;
    let start = Instant::now();
    client.write(label(kill)).await?;
    let gap = start.elapsed();
    cluster.restart(leader)?;
    wait_all_reachable(client).await?;
    Ok(gap)
}

async fn wait_all_reachable(client: &Client) -> Result<()> {
    loop {
        let status = client.status().await?;
        let caught_up = status.replicas.iter().all(|replica| replica.reachable && replica.applied >= status.applied);
        if caught_up && status.leader.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn cordon(unschedulable: bool) -> Operation {
    Operation::Cordon(v1::Cordon { name: "node-0000000".to_owned(), unschedulable, precondition: None })
}

fn label(kill: usize) -> Operation {
    Operation::Label(v1::PairsEdit {
        name: "node-0000000".to_owned(),
        set: [("kill".to_owned(), format!("k{kill}"))].into(),
        overwrite: true,
        ..v1::PairsEdit::default()
    })
}
