//! P7: most of a zone falls silent at once. All of it is found in time, and the zone is known to be in trouble before
//! its pods are driven out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::sleep;

use crate::load::fleet::Load;
use crate::node;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::usage::Meter;
use crate::verdicts::Verdicts;

const SCENARIO: &str = "zone-loss";
const LATENESS_GOAL: Goal = Goal::at_most("P7", 5.0);
const TAINTS_GOAL: Goal = Goal::at_most("P7", 1.0);
/// The zone that is hit, and how much of it in percent.
const ZONE: usize = 0;
const SHARE: usize = 70;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const DISRUPTED: &str = "PartialDisruption";

pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    let grace = GRACE.of(setting.scale);
    stage.on_duty(load.nodes).await?;
    let verdicts = Verdicts::watch(&stage.client).await?;
    let zone: Vec<usize> = (ZONE..load.nodes).step_by(node::ZONES).collect();
    let dying = &zone[..zone.len() * SHARE / 100];
    let meter = Meter::start(&stage.processes()?);
    progress::say(format_args!("{} of {} nodes of a zone fall silent", dying.len(), zone.len()));
    let evicted_before = evictions(&zone_status(stage).await?)?;
    let silenced = load.silence(dying).await?;
    let evictions = evictions_when_disrupted(stage, grace + PATIENCE).await?.saturating_sub(evicted_before);
    let seen = verdicts.wait(silenced.len(), grace + PATIENCE).await?;
    let usage = meter.stop();
    let late = seen.beyond_grace(&silenced, grace);
    let [p50, p99, max] = late.spread_ms().map(|millis| millis / 1_000.0);
    let innocent = seen.innocent(&silenced);
    let span = span(seen.unknown.values());
    let mut table = Table::new(
        format!("{} of {} nodes of one zone, {} in all", silenced.len(), zone.len(), load.nodes),
        &["found", "verdicts/s", "beyond grace: p50 s", "p99 s", "max s", "false verdicts", "evictions before"],
    );
    table.row([
        late.len().to_string(),
        format!("{:.0}", late.len() as f64 / span.as_secs_f64().max(0.001)),
        format!("{p50:.2}"),
        format!("{p99:.2}"),
        format!("{max:.2}"),
        innocent.to_string(),
        evictions.to_string(),
    ]);
    let detailed = |goal, what, value, unit| {
        Finding::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("silent", silenced.len())
            .with("grace_s", grace.as_secs())
            .with("multiplexed", "many nodes per stream")
            .with("beyond_grace_s", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
    };
    let mut outcome = Outcome { tables: vec![table, usage.table_per_beats(late.len() as u64)], ..Outcome::default() };
    outcome.findings = vec![
        detailed(LATENESS_GOAL, "last verdict beyond grace", max, "s"),
        detailed(TAINTS_GOAL, "NoExecute taints before PartialDisruption", evictions as f64, "nodes"),
    ];
    outcome.faults.extend(seen.faults(&silenced));
    outcome.timeline.extend(usage.series);
    outcome.faults.extend(stage.revive(load, &silenced).await.err().map(|why| format!("after it: {why:#}")));
    Ok(outcome)
}

/// How many nodes of the zone had ever been tainted when it was first seen to be disrupted: both are of one state.
async fn evictions_when_disrupted(stage: &Stage, patience: Duration) -> Result<u64> {
    let start = Instant::now();
    loop {
        let status = zone_status(stage).await?;
        if status["state"] == DISRUPTED {
            return evictions(&status);
        }
        if start.elapsed() > patience {
            bail!("the zone was never in {DISRUPTED}: {status}");
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn zone_status(stage: &Stage) -> Result<Value> {
    let name = format!("eu-1/{}", node::zone(ZONE));
    let mut zone: Value = serde_json::from_slice(&stage.client.get("zones", &name, true).await?.value)?;
    Ok(zone["status"].take())
}

fn evictions(status: &Value) -> Result<u64> {
    status["evictions"].as_u64().context("a zone without evictions")
}

fn span<'a>(moments: impl Iterator<Item = &'a Instant> + Clone) -> Duration {
    let (first, last) = (moments.clone().min(), moments.max());
    first.zip(last).map_or(Duration::ZERO, |(first, last)| *last - *first)
}
