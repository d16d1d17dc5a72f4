//! `replica-loss` (guard rail): agents with a TLS connection each, and one replica dies for good. Its agents attach
//! to the others before any is marked Unknown. Their speed says how many agents a replica may serve.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::agents::{AgentPool, RETRY_CAP};
use crate::measure::no_false_verdicts::{FalseVerdictGuard, GuardResult};
use crate::measure::recovery::{Recovered, Recovery};
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::report::figure::{Figure, GUARD, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "replica-loss";
/// The usual grace period, for which the scenario reports how many agents a replica may serve.
const USUAL_GRACE: Duration = Duration::from_secs(40);
const USUAL_INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(180);

struct Measured {
    agents: usize,
    grace: Duration,
    /// Agents of the replica that died.
    orphaned: usize,
    seconds: f64,
    /// Connections that were begun during the recovery, also in vain.
    attempts: usize,
    guarded: GuardResult,
    usage: ResourceUsage,
    timeline: MeasuredTimeline,
}

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (count, grace) = (options.nodes(300, 18_000), GRACE.of(options.scale));
    let bed = TestBed::start(options, count, &GRACE.flags(options.scale)).await?;
    ensure!(
        bed.cluster.is_own(),
        "this scenario kills a replica for good: leave out --dir, and it starts a cluster of its own"
    );
    bed.register(count).await?;
    let agents = AgentPool::start(&bed.doors, count, bed.instance)?;
    agents.beat(count as f64 / (grace / 4).as_secs_f64());
    agents.wait_attached().await?;
    bed.wait_watched(count).await?;
    agents.allow_rush();
    Ok(measure(&bed, &agents, grace).await?.outcome())
}

async fn measure(bed: &TestBed, agents: &AgentPool, grace: Duration) -> Result<Measured> {
    let guard = FalseVerdictGuard::watch(&bed.client).await?;
    let door = (0..bed.doors.count()).find(|door| Some(bed.doors.replica(*door)) != guard.leader());
    let door = door.context("there is no follower")?;
    let (orphaned, attempts) = (agents.attached_at(door), agents.attempts());
    let (meter, began, mut timeline) =
        (UsageMeter::start(&bed.processes()?), Instant::now(), MeasuredTimeline::default());
    timeline.push("attached", "agents", 0.0, agents.attached() as f64);
    let replica = bed.doors.replica(door);
    progress::print(format_args!("kill -9 of replica {replica}, a follower with {orphaned} agents"));
    bed.cluster.kill(replica)?;
    let since = Instant::now();
    let recovery = Recovery { name: "attached", unit: "agents", since, began, timeout: TIMEOUT };
    let present = || {
        // Agents that have not noticed yet still count as attached to the dead replica.
        let (gone, count) = (agents.attached_at(door) == 0, agents.attached());
        Recovered { count, complete: gone && count == agents.count }
    };
    let seconds = recovery.wait(&mut timeline, present).await?;
    let attempts = agents.attempts() - attempts;
    progress::print(format_args!("all are attached again after {seconds:.1} s"));
    guard.watch_on(grace).await;
    let usage = meter.stop();
    let guarded = guard.end(&bed.client, agents.count).await?;
    Ok(Measured { agents: agents.count, grace, orphaned, seconds, attempts, guarded, usage, timeline })
}

// === impl Measured ===

impl Measured {
    fn rate(&self) -> f64 {
        self.orphaned as f64 / self.seconds.max(f64::EPSILON)
    }

    fn table(&self) -> ReportTable {
        let title = format!(
            "{} agents with a TLS connection each, the {} of one replica lose it for good, grace {} s",
            self.agents,
            self.orphaned,
            self.grace.as_secs()
        );
        let header = [
            "attached again after s",
            "handshakes/s",
            "attempts",
            "agents per replica at a grace of 40 s",
            "false verdicts",
        ];
        let mut table = ReportTable::new(title, &header);
        table.row([
            format!("{:.1}", self.seconds),
            grouped(self.rate().round()),
            self.attempts.to_string(),
            grouped(supported(self.rate(), USUAL_GRACE - RETRY_CAP)),
            self.guarded.false_verdicts.to_string(),
        ]);
        table
    }

    fn figure(&self, what: &'static str, value: f64, unit: &'static str) -> Figure {
        self.detailed(Figure::new(SCENARIO, Goal::reported(GUARD), what, value, unit))
    }

    fn detailed(&self, figure: Figure) -> Figure {
        figure
            .with("agents", self.agents)
            .with("connections", self.agents)
            .with("multiplexed", "nothing")
            .with("agents_of_the_lost_replica", self.orphaned)
            .with("attempts", self.attempts)
            .with("grace_s", self.grace.as_secs())
            .with("longest_pause_s", RETRY_CAP.as_secs())
    }

    fn outcome(self) -> ScenarioOutcome {
        let rate = self.rate();
        // An agent whose next beat was just due when its replica died has been silent for an interval already.
        let strict = supported(rate, USUAL_GRACE - RETRY_CAP - USUAL_INTERVAL);
        let fleet = supported(rate, USUAL_GRACE - RETRY_CAP);
        let figures = vec![
            self.figure("until all are attached again", self.seconds, "s"),
            self.figure("handshakes in the recovery", rate, "/s"),
            self.figure("fleet per lost replica at a grace of 40 s", fleet, "agents")
                .with("if_a_beat_was_just_due", strict),
            self.detailed(self.guarded.figure(SCENARIO)),
        ];
        let tables = vec![self.table(), self.usage.table()];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        ScenarioOutcome { figures, tables, timeline, faults: self.guarded.faults, ..ScenarioOutcome::default() }
    }
}

/// How many agents attach in this time.
fn supported(rate: f64, time: Duration) -> f64 {
    (rate * time.as_secs_f64()).floor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_supported_fleet_size_excludes_the_retry_pause() {
        assert_eq!(supported(1_000.0, USUAL_GRACE - RETRY_CAP), 33_000.0);
        assert_eq!(supported(0.5, Duration::from_secs(33)), 16.0);
    }

    #[test]
    fn a_recovery_is_reported_in_full() {
        let measured = Measured {
            agents: 300,
            grace: Duration::from_secs(8),
            orphaned: 100,
            seconds: 2.0,
            attempts: 130,
            guarded: GuardResult::default(),
            usage: ResourceUsage::default(),
            timeline: MeasuredTimeline::default(),
        };
        assert_eq!(measured.table().rows, [["2.0", "50", "130", "1,650", "0"]]);
        let outcome = measured.outcome();
        let values: Vec<f64> = outcome.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [2.0, 50.0, 1_650.0, 0.0]);
        assert_eq!(outcome.figures[2].details["if_a_beat_was_just_due"], 1_150.0);
        assert!(!outcome.failed());
    }
}
