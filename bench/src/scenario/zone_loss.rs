//! `zone-loss` (P7): most of a zone falls silent at once. All verdicts come in time, and the zone is in
//! PartialDisruption before its nodes are tainted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_client::{Query, Watch};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::FleetLoad;
use crate::load::node;
use crate::measure::usage::UsageMeter;
use crate::measure::verdicts::VerdictWatch;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const SCENARIO: &str = "zone-loss";
const LATENESS_GOAL: Goal = Goal::at_most("P7", 5.0);
const TAINTS_GOAL: Goal = Goal::at_most("P7", 1.0);
/// The zone that is hit, and the percentage of its nodes that fall silent.
const ZONE: usize = 0;
const SHARE: usize = 70;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Selects all events but the verdicts.
const OTHERS: &str = "reason!=NodeNotReady";
const TAINTED: &str = "NodeTaintedForEviction";
const ZONE_CHANGED: &str = "ZoneStateChanged";
const DISRUPTED: &str = "to PartialDisruption";

pub(super) async fn measure(bed: &TestBed, load: &FleetLoad, options: &BenchOptions) -> Result<ScenarioOutcome> {
    let grace = GRACE.of(options.scale);
    bed.wait_watched(load.nodes).await?;
    let verdicts = VerdictWatch::watch(&bed.client).await?;
    let zone: Vec<usize> = (ZONE..load.nodes).step_by(node::ZONES).collect();
    let dying = &zone[..zone.len() * SHARE / 100];
    let (meter, began) = (UsageMeter::start(&bed.processes()?), Instant::now());
    progress::print(format_args!("{} of {} nodes of a zone fall silent", dying.len(), zone.len()));
    let others = Query { field_selector: OTHERS.to_owned(), ..Query::of("events") };
    let others = bed.client.watch(others, Some(bed.client.status().await?.revision)).await?;
    let taints = AbortOnDropHandle::new(tokio::spawn(taints_before_disruption(others)));
    let silenced = load.silence(dying).await?;
    let taints = timeout(grace + TIMEOUT, taints).await.context("the zone was never in PartialDisruption")???;
    let seen = verdicts.wait(silenced.len(), grace + TIMEOUT).await?;
    let usage = meter.stop();
    let late = seen.beyond_grace(&silenced, grace);
    let [p50, p99, max] = late.spread_ms().map(|millis| millis / 1_000.0);
    let false_verdicts = seen.false_verdicts(&silenced);
    let span = span(seen.unknown.values());
    let mut table = ReportTable::new(
        format!("{} of {} nodes of one zone, {} in all", silenced.len(), zone.len(), load.nodes),
        &["found", "verdicts/s", "beyond grace: p50 s", "p99 s", "max s", "false verdicts", "taints before"],
    );
    table.row([
        late.len().to_string(),
        format!("{:.0}", late.len() as f64 / span.as_secs_f64().max(0.001)),
        format!("{p50:.2}"),
        format!("{p99:.2}"),
        format!("{max:.2}"),
        false_verdicts.to_string(),
        taints.to_string(),
    ]);
    let detailed = |goal, what, value, unit| {
        Figure::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("silent", silenced.len())
            .with("grace_s", grace.as_secs())
            .with("multiplexed", "many nodes per stream")
            .with("beyond_grace_s", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
    };
    let mut outcome =
        ScenarioOutcome { tables: vec![table, usage.table_per_beats(late.len() as u64)], ..ScenarioOutcome::default() };
    outcome.figures = vec![
        detailed(LATENESS_GOAL, "last verdict beyond grace", max, "s"),
        detailed(TAINTS_GOAL, "NoExecute taints before PartialDisruption", taints as f64, "nodes"),
    ];
    outcome.faults.extend(seen.faults(&silenced));
    outcome.timeline = seen.timeline(&silenced, grace, began);
    outcome.timeline.extend(usage.series);
    outcome
        .faults
        .extend(bed.revive(load, &silenced).await.err().map(|why| format!("the nodes did not recover: {why:#}")));
    Ok(outcome)
}

/// How many nodes of the zone were tainted before it was disrupted. Counted by events: they come in the order in
/// which the changes were committed, while a query of the zone's state may come too late.
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
    fn taints_count_in_the_lost_zone_until_it_is_disrupted() {
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
