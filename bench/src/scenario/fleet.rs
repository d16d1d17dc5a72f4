//! `fleet` (P3): a large fleet at rest. Every node beats once in ten seconds and has an actor, and nothing happens.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::TestBed;
use crate::load::fleet::{FleetLoad, Silenced};
use crate::measure::accepted_rate::AcceptedRate;
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::measure::verdicts::VerdictWatch;
use crate::measure::visibility;
use crate::report::figure::{Figure, Goal};
use crate::report::number::{grouped, mebibytes};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "fleet";
const FALSE_VERDICTS: Goal = Goal::zero("P3");
const LEADER_GOAL: Goal = Goal::at_most("P3", 12_000.0);
const FOLLOWER_GOAL: Goal = Goal::at_most("P3", 3_000.0);
const CPU_GOAL: Goal = Goal::at_most("P3", 1.0);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn measure(bed: &TestBed, load: &FleetLoad, options: &BenchOptions) -> Result<ScenarioOutcome> {
    let duration = options.duration(5, 600);
    bed.wait_watched(load.nodes).await?;
    let verdicts = VerdictWatch::watch(&bed.client).await?;
    let (mut rate, sent_before) = (AcceptedRate::start(&bed.cluster).await?, load.counts.beats.load(Ordering::Relaxed));
    let (meter, mut timeline) = (UsageMeter::start(&bed.processes()?), MeasuredTimeline::default());
    while rate.started.elapsed() < duration {
        let accepted = grouped(rate.sample(SAMPLE_EVERY.min(duration), &mut timeline).await?.round());
        let (seconds, unknown) = (rate.elapsed(), verdicts.count());
        progress::print(format_args!("{seconds:.0} s: {accepted} beats/s, {unknown} nodes marked Unknown"));
    }
    let (elapsed, usage) = (rate.elapsed(), meter.stop());
    let sent = load.counts.beats.load(Ordering::Relaxed) - sent_before;
    let accepted = bed.accepted_since(&rate.first, sent).await?;
    let visibility = visibility::check(&bed.cluster).await?;
    let leader = bed.cluster.leader().await?;
    let (seen, ready) = (verdicts.seen(), bed.client.status().await?.nodes_ready);
    let cores = usage.server_cpu_seconds() / elapsed;
    let memory = Memory::of(&usage, leader);
    let mut table = ReportTable::new(
        format!("{} nodes on {} streams for {elapsed:.0} s, an actor each", load.nodes, load.streams()),
        &["beats/s", "sent", "accepted", "false verdicts", "leader MB", "follower MB", "server cores"],
    );
    table.row([
        grouped((accepted as f64 / elapsed).round()),
        grouped(sent as f64),
        grouped(accepted as f64),
        seen.unknown.len().to_string(),
        format!("{:.0}", memory.leader),
        format!("{:.0}", memory.follower),
        format!("{cores:.2}"),
    ]);
    let mut outcome = ScenarioOutcome {
        tables: vec![table, usage.table_per_beats(accepted)],
        timeline,
        ..ScenarioOutcome::default()
    };
    outcome.faults.extend(seen.faults(&Silenced::new()));
    if accepted < sent {
        outcome.faults.push(format!("{} of {sent} beats were lost", sent - accepted));
    }
    outcome.faults.extend(visibility.fault());
    if ready != load.nodes as u64 {
        outcome.faults.push(format!("{ready} of {} nodes are ready, and all of them beat", load.nodes));
    }
    let detailed = |goal, what, value, unit| {
        Figure::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("streams", load.streams())
            .with("multiplexed", "many nodes per stream")
            .with("seconds", elapsed)
    };
    outcome.figures = vec![
        detailed(FALSE_VERDICTS, "false verdicts", seen.unknown.len() as f64, "nodes"),
        detailed(LEADER_GOAL, "leader memory", memory.leader, "MB"),
        detailed(FOLLOWER_GOAL, "follower memory", memory.follower, "MB"),
        detailed(CPU_GOAL, "server processor time", cores, "cores"),
    ];
    outcome.timeline.extend(usage.series);
    Ok(outcome)
}

/// Peaks, in millions of bytes.
struct Memory {
    leader: f64,
    follower: f64,
}

impl Memory {
    fn of(usage: &ResourceUsage, leader: u64) -> Self {
        let megabytes = |bytes: u64| mebibytes(bytes) * 1.048_576;
        let leader = crate::harness::cluster::label(leader);
        let followers = usage
            .processes
            .iter()
            .filter(|process| process.label != leader && process.label != crate::measure::usage::GENERATOR);
        Self {
            leader: usage.of(&leader).map_or(0.0, |process| megabytes(process.rss_peak_bytes)),
            follower: followers.map(|process| megabytes(process.rss_peak_bytes)).fold(0.0, f64::max),
        }
    }
}
