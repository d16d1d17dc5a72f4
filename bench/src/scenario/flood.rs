//! `flood` (guard rail): one aggregator sends as much as it can, beside a fleet that behaves. The fleet does not
//! suffer from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::FleetLoad;
use crate::load::flooding::FloodingAggregator;
use crate::measure::accepted_rate::AcceptedRate;
use crate::measure::no_false_verdicts::{FalseVerdictGuard, GuardResult};
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::measure::visibility::{self, Visibility};
use crate::report::figure::{Figure, GUARD, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "flood";
/// Nodes of the flooding aggregator.
const FLOODERS: usize = 16;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The beats that both sent, and the losses of the fleet's connections and bindings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SentCounts {
    /// Beats of the fleet.
    healthy: u64,
    /// Connections of the fleet that ended.
    lost: usize,
    /// Bindings and reports of the fleet that were refused.
    refused: usize,
    /// Beats of the flood.
    flooding: u64,
    /// Bindings of the flood.
    bindings: u64,
    /// Statuses of the flood.
    statuses: u64,
    /// Statuses of the flood that were accepted or refused.
    answered: u64,
}

struct Measured {
    nodes: usize,
    streams: usize,
    seconds: f64,
    sent: SentCounts,
    /// Accepted beats of all that were sent.
    accepted: u64,
    /// The flooder's connection was ended.
    ended: bool,
    visibility: Visibility,
    guarded: GuardResult,
    usage: ResourceUsage,
    timeline: MeasuredTimeline,
}

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (healthy, grace) = (options.nodes(10_000, 100_000), GRACE.of(options.scale));
    let bed = TestBed::start(options, healthy + FLOODERS, &GRACE.flags(options.scale)).await?;
    bed.register(healthy + FLOODERS).await?;
    let load = bed.start_fleet(healthy).await?;
    let flooder = FloodingAggregator::start(&bed.doors, 0, healthy..healthy + FLOODERS, bed.instance).await?;
    bed.wait_watched(healthy + FLOODERS).await?;
    let measured = measure(&bed, &load, &flooder, options.duration(4, 30), grace).await?;
    Ok(measured.outcome())
}

async fn measure(
    bed: &TestBed,
    load: &FleetLoad,
    flooder: &FloodingAggregator,
    duration: Duration,
    grace: Duration,
) -> Result<Measured> {
    let guard = FalseVerdictGuard::watch(&bed.client).await?;
    let (first, before) = (bed.cluster.accepted().await?, SentCounts::now(load, flooder));
    let meter = UsageMeter::start(&bed.processes()?);
    let start = Instant::now();
    flooder.flood(true);
    let timeline = watch(bed, load, &guard, duration).await?;
    // Checked while the flood goes on: a leader that only catches up when no more beats come would be too late.
    let visibility = visibility::check(&bed.cluster).await?;
    flooder.flood(false);
    let (seconds, usage) = (start.elapsed().as_secs_f64(), meter.stop());
    let sent = SentCounts::now(load, flooder).since(before);
    let accepted = bed.accepted_since(&first, sent.healthy + sent.flooding).await?;
    guard.watch_on(grace).await;
    let guarded = guard.end(&bed.client, load.nodes + FLOODERS).await?;
    let (nodes, streams, ended) = (load.nodes, load.streams(), flooder.is_over());
    Ok(Measured { nodes, streams, seconds, sent, accepted, ended, visibility, guarded, usage, timeline })
}

/// The rate of accepted beats meanwhile, second by second.
async fn watch(
    bed: &TestBed,
    load: &FleetLoad,
    guard: &FalseVerdictGuard,
    duration: Duration,
) -> Result<MeasuredTimeline> {
    let (mut rate, mut timeline) = (AcceptedRate::start(&bed.cluster).await?, MeasuredTimeline::default());
    while rate.started.elapsed() < duration {
        let accepted = grouped(rate.sample(SAMPLE_EVERY, &mut timeline).await?.round());
        timeline.push("bound", "nodes", rate.elapsed(), load.bound() as f64);
        progress::print(format_args!("{accepted} beats/s, {} nodes marked Unknown", guard.false_verdicts()));
    }
    Ok(timeline)
}

// === impl SentCounts ===

impl SentCounts {
    /// A status counts as a beat too.
    fn now(load: &FleetLoad, flooder: &FloodingAggregator) -> Self {
        let (fleet, flood) = (&load.counts, &flooder.counts);
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            healthy: of(&fleet.beats) + of(&fleet.statuses),
            lost: fleet.lost.load(Ordering::Relaxed),
            refused: fleet.refused.load(Ordering::Relaxed),
            flooding: of(&flood.sent),
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
    /// Lost beats are counted as the fleet's, because the replicas count both together.
    fn accepted_healthy(&self) -> u64 {
        self.accepted.saturating_sub(self.sent.flooding).min(self.sent.healthy)
    }

    fn flood_rate(&self) -> f64 {
        self.accepted.saturating_sub(self.sent.healthy) as f64 / self.seconds.max(f64::EPSILON)
    }

    fn table(&self) -> ReportTable {
        let title = format!(
            "{} nodes on {} streams beside one that floods for {:.0} s",
            self.nodes, self.streams, self.seconds
        );
        let header = [
            "flood accepted/s",
            "bindings/s",
            "statuses/s",
            "statuses answered/s",
            "fleet sent",
            "fleet accepted",
            "late",
            "false verdicts",
        ];
        let per_second = |count: u64| grouped((count as f64 / self.seconds.max(f64::EPSILON)).round());
        let mut table = ReportTable::new(title, &header);
        table.row([
            grouped(self.flood_rate().round()),
            per_second(self.sent.bindings),
            per_second(self.sent.statuses),
            per_second(self.sent.answered),
            grouped(self.sent.healthy as f64),
            grouped(self.accepted_healthy() as f64),
            self.visibility.late.to_string(),
            self.guarded.false_verdicts.to_string(),
        ]);
        table
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.guarded.faults.clone();
        let SentCounts { healthy, lost, refused, .. } = self.sent;
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

    fn figures(&self) -> Vec<Figure> {
        let figure = |goal, what, value, unit| self.detailed(Figure::new(SCENARIO, goal, what, value, unit));
        let healthy = self.accepted_healthy() as f64 / self.sent.healthy.max(1) as f64;
        vec![
            figure(Goal::reported(GUARD), "accepted of the flood", self.flood_rate(), "beats/s"),
            figure(Goal::at_least(GUARD, 100.0), "accepted of the fleet beside it", 100.0 * healthy, "%"),
            figure(Goal::zero(GUARD), "late at the leader", self.visibility.late as f64, "nodes"),
            self.detailed(self.guarded.figure(SCENARIO)),
        ]
    }

    fn detailed(&self, figure: Figure) -> Figure {
        figure
            .with("nodes", self.nodes)
            .with("streams", self.streams)
            .with("multiplexed", "many nodes per stream")
            .with("flooding_nodes", FLOODERS)
            .with("seconds", self.seconds)
            .with("sent_by_the_fleet", self.sent.healthy)
            .with("sent_by_the_flood", self.sent.flooding)
            .with("accepted_of_both", self.accepted)
            .with("flood_was_cut_off", self.ended)
    }

    fn outcome(self) -> ScenarioOutcome {
        let (figures, faults) = (self.figures(), self.faults());
        let tables = vec![self.table(), self.usage.table_per_beats(self.accepted)];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        ScenarioOutcome { figures, tables, timeline, faults, ..ScenarioOutcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(accepted: u64, lost: usize) -> Measured {
        let sent = SentCounts { healthy: 1_000, flooding: 50_000, lost, ..SentCounts::default() };
        Measured {
            nodes: 100,
            streams: 3,
            seconds: 10.0,
            sent,
            accepted,
            ended: false,
            visibility: Visibility::default(),
            guarded: GuardResult::default(),
            usage: ResourceUsage::default(),
            timeline: MeasuredTimeline::default(),
        }
    }

    #[test]
    fn lost_beats_are_charged_to_the_healthy_fleet() {
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
