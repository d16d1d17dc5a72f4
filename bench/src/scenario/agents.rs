//! `agents` (P2): agents with a TLS connection each. It measures the memory that an idle connection costs a replica,
//! and beats per second.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::TestBed;
use crate::load::agents::AgentPool;
use crate::measure::accepted_rate::AcceptedRate;
use crate::measure::latency::Latencies;
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::report::figure::{Figure, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "agents";
const RATE_GOAL: Goal = Goal::at_least("P2", 40_000.0);
const MEMORY_GOAL: Goal = Goal::at_most("P2", 40.0);
/// Offered to the replicas: somewhat more than the goal.
const BEATS_PER_SECOND: f64 = 44_000.0;
const BEATS_PER_SECOND_SMALL: f64 = 2_000.0;
/// The time until the processes have given back the memory that only the start needed.
const COOL_DOWN: Duration = Duration::from_secs(10);
const COOL_DOWN_SMALL: Duration = Duration::from_secs(1);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The time for the last beats to be counted.
const COUNT_LAST: Duration = Duration::from_secs(1);
/// No node is marked Unknown while the nodes change hands and the agents rest.
const FLAGS: [&str; 2] = ["--node-monitor-grace-period=10m", "--node-startup-grace-period=10m"];

struct Measured {
    agents: usize,
    attached_per_second: f64,
    /// KB per idle connection.
    per_connection: f64,
    beating: Beating,
    /// Connections that ended by themselves.
    lost: usize,
}

/// Measurements while the agents beat.
struct Beating {
    rate: f64,
    sent: u64,
    accepted: u64,
    latencies: Latencies,
    usage: ResourceUsage,
    timeline: MeasuredTimeline,
}

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (count, duration) = (options.nodes(300, 18_000), options.duration(3, 20));
    let cool_down = options.scale.pick(COOL_DOWN_SMALL, COOL_DOWN);
    let bed = TestBed::start(options, count, &FLAGS).await?;
    bed.register(count).await?;
    sleep(cool_down).await;
    let (before, start) = (resident_bytes(&bed)?, Instant::now());
    let agents = AgentPool::start(&bed.doors, count, bed.instance)?;
    agents.wait_attached().await?;
    let attached_per_second = count as f64 / start.elapsed().as_secs_f64();
    sleep(cool_down).await;
    let per_connection = resident_bytes(&bed)?.saturating_sub(before) as f64 / count as f64 / 1_000.0;
    progress::print(format_args!("{attached_per_second:.0} agents/s attached, {per_connection:.1} KB each"));
    let offered = options.scale.pick(BEATS_PER_SECOND_SMALL, BEATS_PER_SECOND);
    let beating = Beating::measure(&bed, &agents, offered, duration).await?;
    Ok(Measured { agents: count, attached_per_second, per_connection, beating, lost: agents.lost() }.outcome())
}

/// Resident memory of all replicas together.
fn resident_bytes(bed: &TestBed) -> Result<u64> {
    Ok(bed.cluster.resident_bytes()?.into_values().sum())
}

// === impl Beating ===

impl Beating {
    async fn measure(bed: &TestBed, agents: &AgentPool, offered: f64, duration: Duration) -> Result<Self> {
        let (mut rate, sent) = (AcceptedRate::start(&bed.cluster).await?, agents.sent());
        let meter = UsageMeter::start(&bed.processes()?);
        agents.beat(offered);
        let (mut timeline, mut latencies) = (MeasuredTimeline::default(), Latencies::default());
        while rate.started.elapsed() < duration {
            rate.sample(SAMPLE_EVERY, &mut timeline).await?;
            let (at, acknowledged) = (rate.elapsed(), agents.take_latencies());
            timeline.push("acknowledged, p50", "ms", at, acknowledged.percentile_ms(50));
            timeline.push("acknowledged, p99", "ms", at, acknowledged.percentile_ms(99));
            latencies.add(&acknowledged);
        }
        let usage = meter.stop();
        agents.rest();
        sleep(COUNT_LAST).await;
        let sent = agents.sent() - sent;
        let accepted = bed.cluster.accepted().await?.since(&rate.first).total();
        latencies.add(&agents.take_latencies());
        Ok(Self { rate: rate.mean(), sent, accepted, latencies, usage, timeline })
    }
}

// === impl Measured ===

impl Measured {
    fn table(&self) -> ReportTable {
        let mut table = ReportTable::new(
            format!("{} agents, a TLS connection each", self.agents),
            &["attached/s", "KB per idle connection", "accepted/s", "sent", "accepted", "p50 ms", "p99 ms", "max ms"],
        );
        let Beating { rate, sent, accepted, latencies, .. } = &self.beating;
        let [p50, p99, max] = latencies.spread_ms().map(|millis| format!("{millis:.1}"));
        table.row([
            format!("{:.0}", self.attached_per_second),
            format!("{:.1}", self.per_connection),
            grouped(rate.round()),
            grouped(*sent as f64),
            grouped(*accepted as f64),
            p50,
            p99,
            max,
        ]);
        table
    }

    fn faults(&self) -> Vec<String> {
        let Beating { sent, accepted, .. } = self.beating;
        let mut faults = Vec::new();
        if accepted < sent {
            faults.push(format!("{} of {sent} beats were lost", sent - accepted));
        }
        if self.lost > 0 {
            faults.push(format!("{} connections ended by themselves", self.lost));
        }
        faults
    }

    fn figure(&self, goal: Goal, what: &'static str, value: f64, unit: &'static str) -> Figure {
        let Beating { accepted, latencies, usage, .. } = &self.beating;
        let [p50, p99, max] = latencies.spread_ms();
        Figure::new(SCENARIO, goal, what, value, unit)
            .with("agents", self.agents)
            .with("connections", self.agents)
            .with("multiplexed", "nothing")
            .with("attached_per_second", self.attached_per_second)
            .with("acknowledged_ms", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
            .with("cpu_seconds_per_million", usage.server_cpu_seconds() / ((*accepted).max(1) as f64 / 1e6))
    }

    fn outcome(self) -> ScenarioOutcome {
        let figures = vec![
            self.figure(RATE_GOAL, "accepted", self.beating.rate, "beats/s"),
            self.figure(MEMORY_GOAL, "idle connection", self.per_connection, "KB"),
        ];
        let tables = vec![self.table(), self.beating.usage.table_per_beats(self.beating.accepted)];
        let faults = self.faults();
        let mut timeline = self.beating.timeline;
        timeline.extend(self.beating.usage.series);
        ScenarioOutcome { figures, tables, timeline, faults, ..ScenarioOutcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_beats_and_lost_connections_are_faults() {
        for (accepted, lost, faults) in [(100, 0, 0), (99, 0, 1), (100, 1, 1), (99, 1, 2)] {
            let beating = Beating {
                rate: 10.0,
                sent: 100,
                accepted,
                latencies: Latencies::default(),
                usage: ResourceUsage::default(),
                timeline: MeasuredTimeline::default(),
            };
            let measured = Measured { agents: 3, attached_per_second: 1.0, per_connection: 36.4, beating, lost };
            let outcome = measured.outcome();
            assert_eq!(outcome.faults.len(), faults, "{:?}", outcome.faults);
            assert_eq!(outcome.figures.iter().map(|figure| figure.value).collect::<Vec<_>>(), [10.0, 36.4]);
        }
    }
}
