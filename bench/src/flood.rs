//! A guard rail: one aggregator says whatever it can as fast as it can, beside a fleet that behaves. The fleet does not
//! suffer for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::calm::{Calm, Disturbance};
use crate::figure::grouped;
use crate::load::fleet::Load;
use crate::load::flooder::Flooder;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{Meter, Usage};
use crate::visibility::{self, Visibility};

const SCENARIO: &str = "flood";
const GUARD: &str = "guard";
/// Nodes of the flooding aggregator.
const FLOODERS: usize = 16;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Beyond another grace: by then whoever is falsely held for lost would have been.
const WATCH_ON: Duration = Duration::from_secs(3);

/// What was said, and what became of the fleet that behaves meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    /// Beats.
    healthy: u64,
    /// Connections of the fleet.
    lost: usize,
    /// Of the fleet.
    refused: usize,
    /// Beats.
    flooding: u64,
    /// Of the flood.
    bindings: u64,
    /// Of the flood.
    statuses: u64,
    /// Statuses of the flood that were taken or refused.
    answered: u64,
}

struct Measured {
    nodes: usize,
    streams: usize,
    seconds: f64,
    said: Said,
    /// Of all that was said.
    accepted: u64,
    /// The flooder's connection was ended.
    ended: bool,
    visibility: Visibility,
    disturbance: Disturbance,
    usage: Usage,
    timeline: Timeline,
}

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (healthy, grace) = (setting.nodes(10_000, 100_000), GRACE.of(setting.scale));
    let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
    stage.registered(healthy + FLOODERS).await?;
    let (load, _) = stage.fleet(healthy).await?;
    let flooder = Flooder::start(&stage.doors, 0, healthy..healthy + FLOODERS, stage.instance).await?;
    stage.on_duty(healthy + FLOODERS).await?;
    let measured = measure(&stage, &load, &flooder, setting.duration(4, 30), grace).await?;
    Ok(measured.outcome())
}

async fn measure(
    stage: &Stage,
    load: &Load,
    flooder: &Flooder,
    duration: Duration,
    grace: Duration,
) -> Result<Measured> {
    let calm = Calm::watch(&stage.client).await?;
    let (first, before) = (stage.cluster.accepted().await?, Said::now(load, flooder));
    let meter = Meter::start(&stage.processes()?);
    let start = Instant::now();
    flooder.flood(true);
    let timeline = watch(stage, load, &calm, duration).await?;
    // While it goes on: a leader that only catches up when nothing more comes would be too late.
    let visibility = visibility::check(&stage.cluster).await?;
    flooder.flood(false);
    let (seconds, usage) = (start.elapsed().as_secs_f64(), meter.stop());
    let said = Said::now(load, flooder).since(before);
    let accepted = stage.settled(&first, said.healthy + said.flooding).await?;
    sleep(grace + WATCH_ON).await;
    let disturbance = calm.end(&stage.client, load.nodes + FLOODERS).await?;
    let (nodes, streams, ended) = (load.nodes, load.streams(), flooder.is_over());
    Ok(Measured { nodes, streams, seconds, said, accepted, ended, visibility, disturbance, usage, timeline })
}

/// What is accepted meanwhile, second by second.
async fn watch(stage: &Stage, load: &Load, calm: &Calm, duration: Duration) -> Result<Timeline> {
    let (start, mut timeline) = (Instant::now(), Timeline::default());
    let mut last = (stage.cluster.accepted().await?, start);
    while start.elapsed() < duration {
        sleep(SAMPLE_EVERY).await;
        let now = (stage.cluster.accepted().await?, Instant::now());
        let rate = now.0.since(&last.0).total() as f64 / (now.1 - last.1).as_secs_f64();
        let at = start.elapsed().as_secs_f64();
        timeline.push("accepted", "beats/s", at, rate);
        timeline.push("bound", "nodes", at, load.bound() as f64);
        let (rate, condemned) = (grouped(rate.round()), calm.condemned());
        progress::say(format_args!("{rate} beats/s, {condemned} held for lost"));
        last = now;
    }
    Ok(timeline)
}

// === impl Said ===

impl Said {
    /// A status counts as a beat too.
    fn now(load: &Load, flooder: &Flooder) -> Self {
        let (fleet, flood) = (&load.tally, &flooder.tally);
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            healthy: of(&fleet.beats) + of(&fleet.statuses),
            lost: fleet.lost.load(Ordering::Relaxed),
            refused: fleet.refused.load(Ordering::Relaxed),
            flooding: of(&flood.said),
            bindings: of(&flood.bindings),
            statuses: of(&flood.statuses),
            answered: of(&flood.answered),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            healthy: self.healthy - before.healthy,
            lost: self.lost - before.lost,
            refused: self.refused - before.refused,
            flooding: self.flooding - before.flooding,
            bindings: self.bindings - before.bindings,
            statuses: self.statuses - before.statuses,
            answered: self.answered - before.answered,
        }
    }
}

// === impl Measured ===

impl Measured {
    /// What was lost of all, if anything was, is held against the fleet.
    fn accepted_healthy(&self) -> u64 {
        self.accepted.saturating_sub(self.said.flooding).min(self.said.healthy)
    }

    fn flood_rate(&self) -> f64 {
        self.accepted.saturating_sub(self.said.healthy) as f64 / self.seconds.max(f64::EPSILON)
    }

    fn table(&self) -> Table {
        let title = format!(
            "{} nodes on {} streams beside one that floods for {:.0} s",
            self.nodes, self.streams, self.seconds
        );
        let header = [
            "flood accepted/s",
            "bindings/s",
            "statuses/s",
            "statuses answered/s",
            "fleet said",
            "fleet accepted",
            "late",
            "false verdicts",
        ];
        let per_second = |count: u64| grouped((count as f64 / self.seconds.max(f64::EPSILON)).round());
        let mut table = Table::new(title, &header);
        table.row([
            grouped(self.flood_rate().round()),
            per_second(self.said.bindings),
            per_second(self.said.statuses),
            per_second(self.said.answered),
            grouped(self.said.healthy as f64),
            grouped(self.accepted_healthy() as f64),
            self.visibility.late.to_string(),
            self.disturbance.condemned.to_string(),
        ]);
        table
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.disturbance.faults.clone();
        let Said { healthy, lost, refused, .. } = self.said;
        if self.accepted_healthy() < healthy {
            faults.push(format!("{} of {healthy} beats of the fleet were lost", healthy - self.accepted_healthy()));
        }
        if lost > 0 {
            faults.push(format!("{lost} connections of the fleet ended by themselves"));
        }
        if refused > 0 {
            faults.push(format!("{refused} bindings and reports of the fleet were refused"));
        }
        faults.extend(self.visibility.fault());
        faults
    }

    fn findings(&self) -> Vec<Finding> {
        let finding = |goal, what, value, unit| self.detailed(Finding::new(SCENARIO, goal, what, value, unit));
        let healthy = self.accepted_healthy() as f64 / self.said.healthy.max(1) as f64;
        vec![
            finding(Goal::told(GUARD), "accepted of the flood", self.flood_rate(), "beats/s"),
            finding(Goal::at_least(GUARD, 100.0), "accepted of the fleet beside it", 100.0 * healthy, "%"),
            finding(Goal::zero(GUARD), "late at the leader", self.visibility.late as f64, "nodes"),
            self.detailed(self.disturbance.finding(SCENARIO)),
        ]
    }

    fn detailed(&self, finding: Finding) -> Finding {
        finding
            .with("nodes", self.nodes)
            .with("streams", self.streams)
            .with("multiplexed", "many nodes per stream")
            .with("flooding_nodes", FLOODERS)
            .with("seconds", self.seconds)
            .with("said_by_the_fleet", self.said.healthy)
            .with("said_by_the_flood", self.said.flooding)
            .with("accepted_of_both", self.accepted)
            .with("flood_was_cut_off", self.ended)
    }

    fn outcome(self) -> Outcome {
        let (findings, faults) = (self.findings(), self.faults());
        let tables = vec![self.table(), self.usage.table_per_beats(self.accepted)];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        Outcome { findings, tables, timeline, faults, ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(accepted: u64, lost: usize) -> Measured {
        let said = Said { healthy: 1_000, flooding: 50_000, lost, ..Said::default() };
        Measured {
            nodes: 100,
            streams: 3,
            seconds: 10.0,
            said,
            accepted,
            ended: false,
            visibility: Visibility::default(),
            disturbance: Disturbance::default(),
            usage: Usage::default(),
            timeline: Timeline::default(),
        }
    }

    #[test]
    fn what_was_lost_is_held_against_the_fleet() {
        for (accepted, lost, healthy, faults) in [
            (51_000, 0, 1_000, 0),
            (51_100, 0, 1_000, 0),
            (50_900, 0, 900, 1),
            (40_000, 0, 0, 1),
            (51_000, 2, 1_000, 1),
        ] {
            let measured = measured(accepted, lost);
            assert_eq!((measured.accepted_healthy(), measured.faults().len()), (healthy, faults), "{accepted}");
        }
        assert_eq!(measured(51_000, 0).flood_rate(), 5_000.0);
    }
}
