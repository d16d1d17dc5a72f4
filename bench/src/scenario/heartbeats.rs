//! `heartbeats` (P1): heartbeats per second that three replicas accept, each a message of its own on its node's own
//! stream.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::harness::options::{BenchOptions, BenchScale};
use crate::harness::progress;
use crate::harness::test_bed::TestBed;
use crate::load::saturating::SaturatingStreams;
use crate::measure::accepted_rate::AcceptedRate;
use crate::measure::latency::Latencies;
use crate::measure::usage::{GENERATOR, ResourceUsage, UsageMeter};
use crate::measure::visibility::{self, Visibility};
use crate::report::figure::{Figure, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;
use crate::scenario::peers::{MusterResults, PeerResult};

const SCENARIO: &str = "heartbeats";
const GOAL: Goal = Goal::at_least("P1", 1_000_000.0);
/// A few hundred connections for a hundred thousand nodes.
const NODES_PER_CONNECTION: usize = 333;
/// The time until the replicas have written the registrations to disk, which another scenario measures.
const COOL_DOWN: Duration = Duration::from_secs(15);
const COOL_DOWN_SMALL: Duration = Duration::from_millis(500);
/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// No node is marked Unknown while the nodes are registered and change hands.
const FLAGS: [&str; 2] = ["--node-monitor-grace-period=40s", "--node-startup-grace-period=10m"];

/// Measurements with one kind of beats.
struct BeatRun {
    rate: f64,
    /// Accepted while processor time was measured.
    measured: u64,
    sent: u64,
    accepted: u64,
    visibility: Visibility,
    usage: ResourceUsage,
    timeline: MeasuredTimeline,
}

/// Both kinds of beats, one after the other on the same streams.
struct BeatRuns {
    nodes: usize,
    connections: usize,
    plain: BeatRun,
    asking: BeatRun,
    /// How long the replicas took to read a round of beats, or to answer it.
    plain_rounds: Latencies,
    asking_rounds: Latencies,
    ready: u64,
}

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let nodes = options.nodes(2_000, 100_000);
    let runs = BeatRuns::take(options, nodes, nodes.div_ceil(NODES_PER_CONNECTION).max(3)).await?;
    Ok(runs.outcome(options.scale))
}

/// The same over so many connections, to be compared with etcd.
pub(super) async fn muster_results(options: &BenchOptions, connections: usize) -> Result<MusterResults> {
    let runs = BeatRuns::take(options, options.nodes(2_000, 100_000), connections).await?;
    let faults = runs.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(runs.into_results())
}

// === impl BeatRuns ===

impl BeatRuns {
    async fn take(options: &BenchOptions, nodes: usize, connections: usize) -> Result<Self> {
        let duration = options.duration(2, 20);
        let bed = TestBed::start(options, nodes, &FLAGS).await?;
        bed.register(nodes).await?;
        sleep(options.scale.pick(COOL_DOWN_SMALL, COOL_DOWN)).await;
        let mut streams = SaturatingStreams::start(&bed.doors, nodes, connections, bed.instance);
        streams.wait_ready().await?;
        progress::print(format_args!("{nodes} streams over {connections} connections"));
        let plain = measure(&bed, &mut streams, false, duration).await?;
        let plain_rounds = streams.take_rounds();
        let asking = measure(&bed, &mut streams, true, duration).await?;
        let asking_rounds = streams.take_rounds();
        let ready = bed.client.status().await?.nodes_ready;
        streams.end().await?;
        Ok(Self { nodes, connections, plain, asking, plain_rounds, asking_rounds, ready })
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.plain.faults("no reply");
        faults.extend(self.asking.faults("each acknowledged"));
        if self.ready != self.nodes as u64 {
            faults.push(format!("{} of {} nodes are ready, although all of them beat", self.ready, self.nodes));
        }
        faults
    }

    fn outcome(self, scale: BenchScale) -> ScenarioOutcome {
        let goal = scale.pick(Goal::reported(GOAL.id), GOAL);
        let figures = vec![
            self.figure(&self.plain, &self.plain_rounds, goal, "accepted"),
            self.figure(&self.asking, &self.asking_rounds, Goal::reported(GOAL.id), "acknowledged"),
        ];
        let (tables, faults) =
            (vec![self.table(), self.plain.usage.table_per_beats(self.plain.measured)], self.faults());
        let mut timeline = self.plain.timeline;
        timeline.extend(self.plain.usage.series);
        ScenarioOutcome { figures, tables, timeline, faults, ..ScenarioOutcome::default() }
    }

    fn table(&self) -> ReportTable {
        let mut table = ReportTable::new(
            format!("{} nodes, a stream each, over {} TLS connections", self.nodes, self.connections),
            &[
                "beats",
                "accepted/s",
                "sent",
                "accepted",
                "late",
                "server CPU s/M",
                "generator CPU s/M",
                "round p50 ms",
                "p99 ms",
                "max ms",
            ],
        );
        let rows = [("no reply", &self.plain, &self.plain_rounds), ("acknowledged", &self.asking, &self.asking_rounds)];
        for (name, run, rounds) in rows {
            table.row(run.row(name, rounds));
        }
        table
    }

    fn figure(&self, run: &BeatRun, rounds: &Latencies, goal: Goal, what: &'static str) -> Figure {
        let [p50, p99, max] = rounds.spread_ms();
        Figure::new(SCENARIO, goal, what, run.rate, "beats/s")
            .with("nodes", self.nodes)
            .with("streams", self.nodes)
            .with("connections", self.connections)
            .with("multiplexed", "one stream per node, many streams per TLS connection")
            .with("round_ms", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
            .with("cpu_seconds_per_million", run.server_cpu_per_million())
    }

    fn into_results(self) -> MusterResults {
        let peer = |operation, run: BeatRun, rounds: Option<&Latencies>| PeerResult {
            name: "muster".to_owned(),
            operation,
            operations: run.measured,
            rate: run.rate,
            latency: rounds.and_then(Latencies::summary),
            usage: run.usage,
        };
        MusterResults {
            unanswered: peer("beats, no reply", self.plain, None),
            answered: peer("beats, each acknowledged", self.asking, Some(&self.asking_rounds)),
        }
    }
}

/// Beats for so long. The beats that the replicas accepted count, by their own metrics.
async fn measure(
    bed: &TestBed,
    streams: &mut SaturatingStreams,
    acknowledged: bool,
    duration: Duration,
) -> Result<BeatRun> {
    let (before, sent_before) = (bed.cluster.accepted().await?, streams.sent());
    streams.beat(acknowledged);
    sleep(WARM_UP).await;
    let meter = UsageMeter::start(&bed.processes()?);
    let (mut rate, mut timeline) = (AcceptedRate::start(&bed.cluster).await?, MeasuredTimeline::default());
    while rate.started.elapsed() < duration {
        let accepted = grouped(rate.sample(SAMPLE_EVERY, &mut timeline).await?.round());
        progress::print(format_args!("{accepted} beats/s accepted"));
    }
    let usage = meter.stop();
    // Checked while the beats go on: a leader that only catches up when no more beats come would be too late.
    let visibility = visibility::check(&bed.cluster).await?;
    streams.rest().await?;
    let sent = streams.sent() - sent_before;
    let accepted = bed.accepted_since(&before, sent).await?;
    Ok(BeatRun { rate: rate.mean(), measured: rate.total(), sent, accepted, visibility, usage, timeline })
}

// === impl BeatRun ===

impl BeatRun {
    fn server_cpu_per_million(&self) -> f64 {
        self.usage.server_cpu_seconds() * 1e6 / self.measured.max(1) as f64
    }

    fn row(&self, name: &str, rounds: &Latencies) -> Vec<String> {
        let generator = self.usage.of(GENERATOR).map_or(0.0, |process| process.cpu_seconds);
        let [p50, p99, max] = [50, 99, 100].map(|percent| format!("{:.1}", rounds.percentile_ms(percent)));
        vec![
            name.to_owned(),
            grouped(self.rate.round()),
            grouped(self.sent as f64),
            grouped(self.accepted as f64),
            self.visibility.late.to_string(),
            format!("{:.2}", self.server_cpu_per_million()),
            format!("{:.2}", generator * 1e6 / self.measured.max(1) as f64),
            p50,
            p99,
            max,
        ]
    }

    fn faults(&self, name: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.accepted < self.sent {
            faults.push(format!("{name}: {} of {} beats were lost", self.sent - self.accepted, self.sent));
        }
        faults.extend(self.visibility.fault().map(|fault| format!("{name}: {fault}")));
        faults
    }
}
