//! `gap`: how long writes pause when the leader is killed, from the kill to the first write acknowledged after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;

use crate::harness::cluster::{BenchCluster, wait_caught_up};
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::load::node;
use crate::measure::latency::Latencies;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

/// The node that the writes are about.
const NODE: usize = 0;
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);
const GOAL: Goal = Goal::at_most(OTHER, 3_000.0);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (cluster, kills) = (options.cluster()?, options.kills.unwrap_or(options.scale.pick(2, 20)));
    let client = cluster.client()?.with_timeout(Duration::from_secs(30));
    client.write(node::apply(NODE)).await?;
    let mut gaps = Vec::new();
    for kill in 1..=kills {
        let gap = one_kill(&cluster, &client, kill).await?;
        progress::print(format_args!("kill {kill:>2}: {:>6.0} ms", gap.as_secs_f64() * 1_000.0));
        gaps.push(gap);
    }
    let gaps: Latencies = gaps.into_iter().collect();
    let (p50, max) = (gaps.percentile_ms(50), gaps.percentile_ms(100));
    let mut table =
        ReportTable::new("write gap after kill -9 of the leader, one writer", &["kills", "p50 ms", "max ms"]);
    table.row([kills.to_string(), format!("{p50:.0}"), format!("{max:.0}")]);
    let figure = Figure::new("gap", GOAL, "longest", max, "ms").with("kills", kills).with("p50_ms", p50);
    Ok(ScenarioOutcome { figures: vec![figure], tables: vec![table], ..ScenarioOutcome::default() })
}

async fn one_kill(cluster: &BenchCluster, client: &Client, kill: usize) -> Result<Duration> {
    let leader = client.status().await?.leader.context("no leader")?;
    for round in 0..20 {
        client.write(cordon(round % 2 == 0)).await?;
    }
    cluster.kill(leader)?;
    let start = Instant::now();
    client.write(node::set_label(NODE, "kill", format!("k{kill}"))).await?;
    let gap = start.elapsed();
    cluster.restart(leader)?;
    wait_caught_up(client, CATCH_UP_TIMEOUT).await?;
    Ok(gap)
}

fn cordon(unschedulable: bool) -> Operation {
    Operation::Cordon(v1::Cordon { name: node::name(NODE), unschedulable, precondition: None })
}
