//! P1: how many heartbeats three replicas accept in a second, each a message of its own on a stream of its node's own.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::figure::grouped;
use crate::load::bundle::Bundles;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::Stage;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{Meter, Usage};
use crate::visibility::{self, Visibility};

const SCENARIO: &str = "heartbeats";
const GOAL: Goal = Goal::at_least("P1", 1_000_000.0);
/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Nobody is to be missed while nodes are registered and handed over.
const FLAGS: [&str; 2] = ["--node-monitor-grace-period=40s", "--node-startup-grace-period=10m"];

/// What one way of beating came to.
pub struct Course {
    pub rate: f64,
    pub said: u64,
    pub accepted: u64,
    pub visibility: Visibility,
    pub usage: Usage,
    pub timeline: Timeline,
}

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (nodes, seconds) = (setting.nodes(2_000, 100_000), setting.duration(5, 20));
    let connections = nodes.div_ceil(333).max(3);
    let stage = Stage::set(setting, &FLAGS).await?;
    stage.registered(nodes).await?;
    let mut bundles = Bundles::start(&stage.doors, nodes, connections, stage.instance);
    bundles.wait_ready().await?;
    progress::say(format_args!("{nodes} streams over {connections} connections"));
    let plain = measure(&stage, &mut bundles, false, seconds).await?;
    let asking = measure(&stage, &mut bundles, true, seconds).await?;
    let ready = stage.client.status().await?.nodes_ready;
    let latencies = bundles.end().await?;
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("{nodes} nodes, a stream each, {connections} TLS connections, {} s each way", seconds.as_secs()),
        &["beats", "accepted/s", "said", "accepted", "late", "server cpu s/M", "generator cpu s/M"],
    );
    for (name, course) in [("no reply", &plain), ("each acknowledged", &asking)] {
        table.row(course.row(name));
        outcome.faults.extend(course.faults(name));
    }
    if ready != nodes as u64 {
        outcome.faults.push(format!("{ready} of {nodes} nodes are ready, and all of them beat"));
    }
    let finding = |course: &Course, goal, what| {
        let [p50, p99, max] = [50, 99, 100].map(|percent| latencies.percentile_ms(percent));
        Finding::new(SCENARIO, goal, what, course.rate, "beats/s")
            .with("nodes", nodes)
            .with("streams", nodes)
            .with("connections", connections)
            .with("multiplexed", "one stream per node, many streams per TLS connection")
            .with("round_read_ms", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
            .with("cpu_seconds_per_million", course.cpu_per_million())
    };
    outcome.findings.push(finding(&plain, GOAL, "accepted"));
    outcome.findings.push(finding(&asking, Goal::told("P1"), "acknowledged"));
    outcome.tables.push(table);
    outcome.tables.push(plain.usage.table(plain.accepted));
    outcome.timeline = plain.timeline;
    outcome.timeline.extend(plain.usage.series);
    Ok(outcome)
}

/// Beats for so long; what is counted is what the replicas say that they accepted.
pub async fn measure(stage: &Stage, bundles: &mut Bundles, acknowledged: bool, duration: Duration) -> Result<Course> {
    let (before, said_before) = (stage.cluster.accepted().await?, bundles.said());
    bundles.beat(acknowledged);
    sleep(WARM_UP).await;
    let meter = Meter::start(&stage.processes()?);
    let (start, first) = (Instant::now(), stage.cluster.accepted().await?);
    let (mut timeline, mut last, mut last_at) = (Timeline::default(), first.clone(), Instant::now());
    while start.elapsed() < duration {
        sleep(SAMPLE_EVERY).await;
        let (now, at) = (stage.cluster.accepted().await?, Instant::now());
        let rate = now.since(&last).total() as f64 / (at - last_at).as_secs_f64();
        timeline.push("accepted", "beats/s", start.elapsed().as_secs_f64(), rate);
        progress::say(format_args!("{} beats/s accepted", grouped(rate.round())));
        (last, last_at) = (now, at);
    }
    let rate = last.since(&first).total() as f64 / (last_at - start).as_secs_f64();
    let usage = meter.stop();
    // While the beats go on: a leader that only catches up when nothing more comes would be too late.
    let visibility = visibility::check(&stage.cluster).await?;
    bundles.rest().await?;
    let (accepted, said) = (stage.settled(&before, bundles.said() - said_before).await?, bundles.said() - said_before);
    Ok(Course { rate, said, accepted, visibility, usage, timeline })
}

// === impl Course ===

impl Course {
    fn cpu_per_million(&self) -> f64 {
        self.usage.server_cpu_seconds() / (self.measured() / 1e6)
    }

    /// Beats while usage was measured.
    fn measured(&self) -> f64 {
        self.rate * self.timeline.series.first().and_then(|series| series.points.last()).map_or(1.0, |(at, _)| *at)
    }

    fn row(&self, name: &str) -> Vec<String> {
        let generator = self.usage.of(crate::usage::GENERATOR).map_or(0.0, |process| process.cpu_seconds);
        vec![
            name.to_owned(),
            grouped(self.rate.round()),
            grouped(self.said as f64),
            grouped(self.accepted as f64),
            self.visibility.late.to_string(),
            format!("{:.2}", self.cpu_per_million()),
            format!("{:.2}", generator / (self.measured() / 1e6)),
        ]
    }

    fn faults(&self, name: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.accepted < self.said {
            faults.push(format!("{name}: {} of {} beats were lost", self.said - self.accepted, self.said));
        }
        if self.visibility.late > 0 {
            let Visibility { nodes, late, worst } = self.visibility;
            faults.push(format!(
                "{name}: the leader lacked the last beat of {late} of {nodes} nodes a second later, by {worst:?} at worst"
            ));
        }
        faults
    }
}
