//! A guard rail: all nodes lose their connections at once, and all come back at once. It is absorbed in time, and nobody
//! is held for lost over it.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::calm::Calm;
use crate::comeback::Comeback;
use crate::figure::grouped;
use crate::load::paced::{Manner, Paced, Plan};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::Meter;

const SCENARIO: &str = "storm";
const GOAL: Goal = Goal::at_most("guard", 120.0);
const NODES_PER_CONNECTION: usize = 333;
/// Until a storm that is not over counts as never over.
const PATIENCE: Duration = Duration::from_secs(300);
/// Beyond another grace: by then whoever is falsely held for lost would have been.
const WATCH_ON: Duration = Duration::from_secs(3);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (nodes, grace) = (setting.nodes(2_000, 100_000), GRACE.of(setting.scale));
    let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
    stage.registered(nodes).await?;
    let paced = Paced::start(&stage.doors, plan(nodes, &stage, grace));
    paced.wait_bound().await?;
    stage.on_duty(nodes).await?;
    measure(&stage, &paced, grace).await
}

fn plan(nodes: usize, stage: &Stage, grace: Duration) -> Plan {
    Plan {
        numbers: 0..nodes,
        connections: nodes.div_ceil(NODES_PER_CONNECTION).max(3),
        door: 0,
        instance: stage.instance,
        interval: grace / 4,
        manner: Manner::Plain,
    }
}

async fn measure(stage: &Stage, paced: &Paced, grace: Duration) -> Result<Outcome> {
    let (nodes, connections) = (paced.nodes, paced.connections);
    let calm = Calm::watch(&stage.client).await?;
    let (meter, began, mut timeline) = (Meter::start(&stage.processes()?), Instant::now(), Timeline::default());
    timeline.push("bound", "nodes", 0.0, nodes as f64);
    progress::say(format_args!("{nodes} streams on {connections} connections are dropped and come back"));
    paced.reconnect();
    let comeback = Comeback { name: "bound", unit: "nodes", since: Instant::now(), began, patience: PATIENCE };
    let seconds = comeback.wait(&mut timeline, || paced.back(1)).await?;
    progress::say(format_args!("all are bound again after {seconds:.1} s"));
    sleep(grace + WATCH_ON).await;
    let usage = meter.stop();
    let disturbance = calm.end(&stage.client, nodes).await?;
    let [lost, refused] =
        [&paced.tally.lost, &paced.tally.refused].map(|count| count.load(std::sync::atomic::Ordering::Relaxed));
    let mut table = Table::new(
        format!("{nodes} streams on {connections} TLS connections, all dropped at once, grace {} s", grace.as_secs()),
        &["bound again after s", "nodes/s", "connections lost again", "bindings refused", "false verdicts"],
    );
    table.row([
        format!("{seconds:.1}"),
        grouped((nodes as f64 / seconds).round()),
        lost.to_string(),
        refused.to_string(),
        disturbance.condemned.to_string(),
    ]);
    let detailed = |finding: Finding| {
        finding
            .with("nodes", nodes)
            .with("streams", nodes)
            .with("connections", connections)
            .with("multiplexed", "one stream per node, many streams per TLS connection")
            .with("grace_s", grace.as_secs())
            .with("connections_lost_again", lost)
            .with("bindings_refused", refused)
    };
    timeline.extend(usage.series.clone());
    let findings = vec![
        detailed(Finding::new(SCENARIO, GOAL, "until all are bound again", seconds, "s")),
        detailed(disturbance.finding(SCENARIO)),
    ];
    let tables = vec![table, usage.table()];
    Ok(Outcome { findings, tables, timeline, faults: disturbance.faults, ..Outcome::default() })
}
