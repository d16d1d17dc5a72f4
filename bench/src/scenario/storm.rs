//! `storm` (guard rail): all nodes lose their connections at once and come back at once. All are bound again in time,
//! and none is marked Unknown.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::paced::{Behaviour, PacedStreams, StreamPlan};
use crate::measure::no_false_verdicts::FalseVerdictGuard;
use crate::measure::recovery::Recovery;
use crate::measure::usage::UsageMeter;
use crate::report::figure::{Figure, GUARD, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "storm";
const GOAL: Goal = Goal::at_most(GUARD, 120.0);
const NODES_PER_CONNECTION: usize = 333;
/// The limit for all nodes to be bound again.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (nodes, grace) = (options.nodes(2_000, 100_000), GRACE.of(options.scale));
    let bed = TestBed::start(options, nodes, &GRACE.flags(options.scale)).await?;
    bed.register(nodes).await?;
    let paced = PacedStreams::start(&bed.doors, plan(nodes, &bed, grace));
    paced.wait_bound().await?;
    bed.wait_watched(nodes).await?;
    measure(&bed, &paced, grace).await
}

fn plan(nodes: usize, bed: &TestBed, grace: Duration) -> StreamPlan {
    StreamPlan {
        numbers: 0..nodes,
        connections: nodes.div_ceil(NODES_PER_CONNECTION).max(3),
        door: 0,
        instance: bed.instance,
        interval: grace / 4,
        behaviour: Behaviour::Normal,
    }
}

async fn measure(bed: &TestBed, paced: &PacedStreams, grace: Duration) -> Result<ScenarioOutcome> {
    let (nodes, connections) = (paced.nodes, paced.connections);
    let guard = FalseVerdictGuard::watch(&bed.client).await?;
    let (meter, began, mut timeline) =
        (UsageMeter::start(&bed.processes()?), Instant::now(), MeasuredTimeline::default());
    timeline.push("bound", "nodes", 0.0, nodes as f64);
    progress::print(format_args!("{nodes} streams on {connections} connections drop and come back"));
    paced.reconnect();
    let recovery = Recovery { name: "bound", unit: "nodes", since: Instant::now(), began, timeout: TIMEOUT };
    let seconds = recovery.wait(&mut timeline, || paced.recovered()).await?;
    progress::print(format_args!("all are bound again after {seconds:.1} s"));
    guard.watch_on(grace).await;
    let usage = meter.stop();
    let guarded = guard.end(&bed.client, nodes).await?;
    let [lost, refused] =
        [&paced.counts.lost, &paced.counts.refused].map(|count| count.load(std::sync::atomic::Ordering::Relaxed));
    let mut table = ReportTable::new(
        format!("{nodes} streams on {connections} TLS connections, all dropped at once, grace {} s", grace.as_secs()),
        &["bound again after s", "nodes/s", "connections lost again", "bindings refused", "false verdicts"],
    );
    table.row([
        format!("{seconds:.1}"),
        grouped((nodes as f64 / seconds).round()),
        lost.to_string(),
        refused.to_string(),
        guarded.false_verdicts.to_string(),
    ]);
    let detailed = |figure: Figure| {
        figure
            .with("nodes", nodes)
            .with("streams", nodes)
            .with("connections", connections)
            .with("multiplexed", "one stream per node, many streams per TLS connection")
            .with("grace_s", grace.as_secs())
            .with("connections_lost_again", lost)
            .with("bindings_refused", refused)
    };
    timeline.extend(usage.series.clone());
    let figures = vec![
        detailed(Figure::new(SCENARIO, GOAL, "until all are bound again", seconds, "s")),
        detailed(guarded.figure(SCENARIO)),
    ];
    let tables = vec![table, usage.table()];
    Ok(ScenarioOutcome { figures, tables, timeline, faults: guarded.faults, ..ScenarioOutcome::default() })
}
