//! P2: agents with a TLS connection each: what an idle one costs a replica, and how many beats they get through.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::figure::grouped;
use crate::latency::Latencies;
use crate::load::agents::Agents;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::scrape::Accepted;
use crate::setting::Setting;
use crate::stage::Stage;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::Meter;

const SCENARIO: &str = "agents";
const RATE_GOAL: Goal = Goal::at_least("P2", 40_000.0);
const MEMORY_GOAL: Goal = Goal::at_most("P2", 40.0);
/// What is asked of the replicas: somewhat more than the goal.
const BEATS_PER_SECOND: f64 = 44_000.0;
const BEATS_PER_SECOND_SMALL: f64 = 2_000.0;
/// Until memory that was only needed to begin has been given back.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLE_SMALL: Duration = Duration::from_secs(1);
/// Nobody is missed while the nodes are handed over and the agents rest.
const FLAGS: [&str; 2] = ["--node-monitor-grace-period=10m", "--node-startup-grace-period=10m"];

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (count, duration) = (setting.nodes(300, 18_000), setting.duration(3, 20));
    let settle = setting.scale.pick(SETTLE_SMALL, SETTLE);
    let offered = setting.scale.pick(BEATS_PER_SECOND_SMALL, BEATS_PER_SECOND);
    let stage = Stage::set(setting, &FLAGS).await?;
    stage.registered(count).await?;
    sleep(settle).await;
    let before = resident(&stage)?;
    let start = Instant::now();
    let agents = Agents::start(&stage.doors, count, stage.instance)?;
    agents.wait_attached(count).await?;
    let handshakes = count as f64 / start.elapsed().as_secs_f64();
    sleep(settle).await;
    let per_connection = resident(&stage)?.saturating_sub(before) as f64 / count as f64 / 1_000.0;
    progress::say(format_args!("{handshakes:.0} agents/s attached, {per_connection:.1} KB each"));
    let (first, said) = (stage.cluster.accepted().await?, agents.said());
    let meter = Meter::start(&stage.processes()?);
    agents.beat(offered);
    let Course { rate, mut latencies, timeline } = follow(&stage, &agents, &first, duration).await?;
    let usage = meter.stop();
    agents.rest();
    sleep(Duration::from_secs(1)).await;
    let (said, accepted) = (agents.said() - said, stage.cluster.accepted().await?.since(&first).total());
    latencies.push(agents.take_latencies());
    let [p50, p99, max] = Latencies::of_all(latencies).spread_ms();
    let mut table = Table::new(
        format!("{count} agents, a TLS connection each"),
        &["attached/s", "KB per idle connection", "accepted/s", "said", "accepted", "p50 ms", "p99 ms", "max ms"],
    );
    table.row([
        format!("{handshakes:.0}"),
        format!("{per_connection:.1}"),
        grouped(rate.round()),
        grouped(said as f64),
        grouped(accepted as f64),
        format!("{p50:.1}"),
        format!("{p99:.1}"),
        format!("{max:.1}"),
    ]);
    let mut outcome = Outcome { tables: vec![table, usage.table_per_beats(accepted)], timeline, ..Outcome::default() };
    if accepted < said {
        outcome.faults.push(format!("{} of {said} beats were lost", said - accepted));
    }
    if agents.lost() > 0 {
        outcome.faults.push(format!("{} connections ended by themselves", agents.lost()));
    }
    let detailed = |finding: Finding| {
        finding
            .with("agents", count)
            .with("connections", count)
            .with("multiplexed", "nothing")
            .with("attached_per_second", handshakes)
            .with("acknowledged_ms", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
            .with("cpu_seconds_per_million", usage.server_cpu_seconds() / (accepted.max(1) as f64 / 1e6))
    };
    outcome.findings.push(detailed(Finding::new(SCENARIO, RATE_GOAL, "accepted", rate, "beats/s")));
    outcome.findings.push(detailed(Finding::new(SCENARIO, MEMORY_GOAL, "idle connection", per_connection, "KB")));
    outcome.timeline.extend(usage.series);
    Ok(outcome)
}

/// What was seen while they beat, second by second.
struct Course {
    rate: f64,
    latencies: Vec<Latencies>,
    timeline: Timeline,
}

async fn follow(stage: &Stage, agents: &Agents, first: &Accepted, duration: Duration) -> Result<Course> {
    let (began, mut timeline, mut latencies) = (Instant::now(), Timeline::default(), Vec::new());
    let mut last = (first.clone(), began);
    while began.elapsed() < duration {
        sleep(Duration::from_secs(1)).await;
        let now = (stage.cluster.accepted().await?, Instant::now());
        let (at, answered) = (began.elapsed().as_secs_f64(), agents.take_latencies());
        let rate = now.0.since(&last.0).total() as f64 / (now.1 - last.1).as_secs_f64();
        timeline.push("accepted", "beats/s", at, rate);
        timeline.push("acknowledged, p50", "ms", at, answered.percentile_ms(50));
        timeline.push("acknowledged, p99", "ms", at, answered.percentile_ms(99));
        latencies.push(answered);
        last = now;
    }
    let rate = last.0.since(first).total() as f64 / (last.1 - began).as_secs_f64();
    Ok(Course { rate, latencies, timeline })
}

/// Of all replicas together.
fn resident(stage: &Stage) -> Result<u64> {
    Ok(stage.cluster.resident_bytes()?.into_iter().map(|(_, bytes)| bytes).sum())
}
