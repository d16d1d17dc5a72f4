//! P7: most of a zone falls silent at once. All of it is found in time, and the zone is known to be in trouble before
//! its pods are driven out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_client::{Query, Watch};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

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
/// Events that are not the verdicts themselves.
const OTHERS: &str = "reason!=NodeNotReady";
const TAINTED: &str = "NodeTaintedForEviction";
const ZONE_CHANGED: &str = "ZoneStateChanged";
const DISRUPTED: &str = "to PartialDisruption";

pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    let grace = GRACE.of(setting.scale);
    stage.on_duty(load.nodes).await?;
    let verdicts = Verdicts::watch(&stage.client).await?;
    let zone: Vec<usize> = (ZONE..load.nodes).step_by(node::ZONES).collect();
    let dying = &zone[..zone.len() * SHARE / 100];
    let (meter, began) = (Meter::start(&stage.processes()?), Instant::now());
    progress::say(format_args!("{} of {} nodes of a zone fall silent", dying.len(), zone.len()));
    let others = Query { field_selector: OTHERS.to_owned(), ..Query::of("events") };
    let others = stage.client.watch(others, Some(stage.client.status().await?.revision)).await?;
    let taints = AbortOnDropHandle::new(tokio::spawn(taints_before_disruption(others)));
    let silenced = load.silence(dying).await?;
    let taints = timeout(grace + PATIENCE, taints).await.context("the zone was never disrupted")???;
    let seen = verdicts.wait(silenced.len(), grace + PATIENCE).await?;
    let usage = meter.stop();
    let late = seen.beyond_grace(&silenced, grace);
    let [p50, p99, max] = late.spread_ms().map(|millis| millis / 1_000.0);
    let innocent = seen.innocent(&silenced);
    let span = span(seen.unknown.values());
    let mut table = Table::new(
        format!("{} of {} nodes of one zone, {} in all", silenced.len(), zone.len(), load.nodes),
        &["found", "verdicts/s", "beyond grace: p50 s", "p99 s", "max s", "false verdicts", "taints before"],
    );
    table.row([
        late.len().to_string(),
        format!("{:.0}", late.len() as f64 / span.as_secs_f64().max(0.001)),
        format!("{p50:.2}"),
        format!("{p99:.2}"),
        format!("{max:.2}"),
        innocent.to_string(),
        taints.to_string(),
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
        detailed(TAINTS_GOAL, "NoExecute taints before PartialDisruption", taints as f64, "nodes"),
    ];
    outcome.faults.extend(seen.faults(&silenced));
    outcome.timeline = seen.timeline(&silenced, grace, began);
    outcome.timeline.extend(usage.series);
    outcome.faults.extend(stage.revive(load, &silenced).await.err().map(|why| format!("after it: {why:#}")));
    Ok(outcome)
}

/// How many nodes of the zone were tainted before it was known to be disrupted. By their events: those are in the order in
/// which it was committed, while whoever asks how a zone is may come too late for the first answer.
async fn taints_before_disruption(mut watch: Watch) -> Result<usize> {
    let mut count = TaintCount::default();
    while !count.is_over {
        let object = watch.next().await?.object;
        if !object.is_empty() {
            count.note(&serde_json::from_slice(&object)?);
        }
    }
    Ok(count.taints)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct TaintCount {
    taints: usize,
    /// The zone is disrupted.
    is_over: bool,
}

impl TaintCount {
    fn note(&mut self, event: &Value) {
        self.is_over |= is_disruption(event);
        self.taints += usize::from(!self.is_over && is_taint(event));
    }
}

fn is_taint(event: &Value) -> bool {
    let is_of_zone = |name: &str| node::number(name).is_some_and(|number| number % node::ZONES == ZONE);
    event["reason"] == TAINTED && event["involvedObject"]["name"].as_str().is_some_and(is_of_zone)
}

fn is_disruption(event: &Value) -> bool {
    let zone = format!("eu-1/{}", node::zone(ZONE));
    let is_so = |message: &str| message.contains(DISRUPTED);
    let is_of_zone = event["reason"] == ZONE_CHANGED && event["involvedObject"]["name"] == zone.as_str();
    is_of_zone && event["message"].as_str().is_some_and(is_so)
}

fn span<'a>(moments: impl Iterator<Item = &'a Instant> + Clone) -> Duration {
    let (first, last) = (moments.clone().min(), moments.max());
    first.zip(last).map_or(Duration::ZERO, |(first, last)| *last - *first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(reason: &str, name: &str, message: &str) -> Value {
        json!({ "reason": reason, "involvedObject": { "name": name }, "message": message })
    }

    #[test]
    fn taints_count_in_the_zone_that_is_hit_until_it_is_disrupted() {
        let [zone, elsewhere] = [ZONE, ZONE + 1].map(|number| format!("eu-1/{}", node::zone(number)));
        let [own, other] = [ZONE, ZONE + 1].map(|number| event(TAINTED, &node::name(number), ""));
        let told = "zone went from Normal to PartialDisruption: 1 of 3 nodes are ready";
        let back = "zone went from PartialDisruption to Normal: 3 of 3 nodes are ready";
        let harmless = [
            event("CIDRNotAvailable", &node::name(ZONE), ""),
            event(ZONE_CHANGED, &zone, back),
            event(ZONE_CHANGED, &elsewhere, told),
            event("PolicyChanged", &zone, told),
        ];
        let mut count = TaintCount::default();
        harmless.iter().chain([&own, &other]).for_each(|event| count.note(event));
        assert_eq!(count, TaintCount { taints: 1, is_over: false });
        [event(ZONE_CHANGED, &zone, told), own].iter().for_each(|event| count.note(event));
        assert_eq!(count, TaintCount { taints: 1, is_over: true });
    }
}
