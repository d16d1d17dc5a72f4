//! P1: how many heartbeats three replicas accept in a second, each a message of its own on a stream of its node's own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::figure::grouped;
use crate::latency::Latencies;
use crate::load::bundle::Bundles;
use crate::outcome::{Finding, Goal, Outcome};
use crate::peers::{Ours, Peer, Summary};
use crate::progress;
use crate::setting::{Scale, Setting};
use crate::stage::Stage;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{GENERATOR, Meter, Usage};
use crate::visibility::{self, Visibility};

const SCENARIO: &str = "heartbeats";
const GOAL: Goal = Goal::at_least("P1", 1_000_000.0);
/// A few hundred connections for a hundred thousand nodes.
const NODES_PER_CONNECTION: usize = 333;
/// Until the replicas have written down what was registered, which is another scenario.
const SETTLE: Duration = Duration::from_secs(15);
const SETTLE_SMALL: Duration = Duration::from_millis(500);
/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Nobody is to be missed while nodes are registered and handed over.
const FLAGS: [&str; 2] = ["--node-monitor-grace-period=40s", "--node-startup-grace-period=10m"];

/// What one way of beating came to.
pub struct Course {
    pub rate: f64,
    /// Accepted while processor time was measured.
    pub measured: u64,
    pub said: u64,
    pub accepted: u64,
    pub visibility: Visibility,
    pub usage: Usage,
    pub timeline: Timeline,
}

/// Both ways, one after the other on the same streams.
struct Courses {
    nodes: usize,
    connections: usize,
    plain: Course,
    asking: Course,
    /// How long a round of beats took to be read, or to be answered.
    plain_rounds: Latencies,
    asking_rounds: Latencies,
    ready: u64,
}

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let nodes = setting.nodes(2_000, 100_000);
    let courses = Courses::take(setting, nodes, nodes.div_ceil(NODES_PER_CONNECTION).max(3)).await?;
    Ok(courses.outcome(setting.scale))
}

/// The same over so many connections, to be held against others.
pub async fn ours(setting: &Setting, connections: usize) -> Result<Ours> {
    let courses = Courses::take(setting, setting.nodes(2_000, 100_000), connections).await?;
    let faults = courses.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(courses.into_ours())
}

// === impl Courses ===

impl Courses {
    async fn take(setting: &Setting, nodes: usize, connections: usize) -> Result<Self> {
        let duration = setting.duration(2, 20);
        let stage = Stage::set(setting, &FLAGS).await?;
        stage.registered(nodes).await?;
        sleep(setting.scale.pick(SETTLE_SMALL, SETTLE)).await;
        let mut bundles = Bundles::start(&stage.doors, nodes, connections, stage.instance);
        bundles.wait_ready().await?;
        progress::say(format_args!("{nodes} streams over {connections} connections"));
        let plain = measure(&stage, &mut bundles, false, duration).await?;
        let plain_rounds = bundles.take_rounds();
        let asking = measure(&stage, &mut bundles, true, duration).await?;
        let asking_rounds = bundles.take_rounds();
        let ready = stage.client.status().await?.nodes_ready;
        bundles.end().await?;
        Ok(Self { nodes, connections, plain, asking, plain_rounds, asking_rounds, ready })
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.plain.faults("no reply");
        faults.extend(self.asking.faults("each acknowledged"));
        if self.ready != self.nodes as u64 {
            faults.push(format!("{} of {} nodes are ready, and all of them beat", self.ready, self.nodes));
        }
        faults
    }

    fn outcome(self, scale: Scale) -> Outcome {
        let goal = scale.pick(Goal::told(GOAL.id), GOAL);
        let findings = vec![
            self.finding(&self.plain, &self.plain_rounds, goal, "accepted"),
            self.finding(&self.asking, &self.asking_rounds, Goal::told(GOAL.id), "acknowledged"),
        ];
        let (tables, faults) =
            (vec![self.table(), self.plain.usage.table_per_beats(self.plain.measured)], self.faults());
        let mut timeline = self.plain.timeline;
        timeline.extend(self.plain.usage.series);
        Outcome { findings, tables, timeline, faults, ..Outcome::default() }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(
            format!("{} nodes, a stream each, over {} TLS connections", self.nodes, self.connections),
            &[
                "beats",
                "accepted/s",
                "said",
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
        for (name, course, rounds) in rows {
            table.row(course.row(name, rounds));
        }
        table
    }

    fn finding(&self, course: &Course, rounds: &Latencies, goal: Goal, what: &'static str) -> Finding {
        let [p50, p99, max] = [50, 99, 100].map(|percent| rounds.percentile_ms(percent));
        Finding::new(SCENARIO, goal, what, course.rate, "beats/s")
            .with("nodes", self.nodes)
            .with("streams", self.nodes)
            .with("connections", self.connections)
            .with("multiplexed", "one stream per node, many streams per TLS connection")
            .with("round_ms", serde_json::json!({ "p50": p50, "p99": p99, "max": max }))
            .with("cpu_seconds_per_million", course.server_cpu_per_million())
    }

    fn into_ours(self) -> Ours {
        let peer = |operation, course: Course, rounds: Option<&Latencies>| Peer {
            name: "muster".to_owned(),
            operation,
            operations: course.measured,
            rate: course.rate,
            latency: rounds.map(|rounds| {
                let [p50_ms, p99_ms, max_ms] = [50, 99, 100].map(|percent| rounds.percentile_ms(percent));
                Summary { p50_ms, p99_ms, max_ms }
            }),
            usage: course.usage,
        };
        Ours {
            unanswered: peer("beats, no reply", self.plain, None),
            answered: peer("beats, each acknowledged", self.asking, Some(&self.asking_rounds)),
        }
    }
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
    let measured = last.since(&first).total();
    let rate = measured as f64 / (last_at - start).as_secs_f64();
    let usage = meter.stop();
    // While the beats go on: a leader that only catches up when nothing more comes would be too late.
    let visibility = visibility::check(&stage.cluster).await?;
    bundles.rest().await?;
    let (accepted, said) = (stage.settled(&before, bundles.said() - said_before).await?, bundles.said() - said_before);
    Ok(Course { rate, measured, said, accepted, visibility, usage, timeline })
}

// === impl Course ===

impl Course {
    fn server_cpu_per_million(&self) -> f64 {
        self.usage.server_cpu_seconds() * 1e6 / self.measured.max(1) as f64
    }

    fn row(&self, name: &str, rounds: &Latencies) -> Vec<String> {
        let generator = self.usage.of(GENERATOR).map_or(0.0, |process| process.cpu_seconds);
        let [p50, p99, max] = [50, 99, 100].map(|percent| format!("{:.1}", rounds.percentile_ms(percent)));
        vec![
            name.to_owned(),
            grouped(self.rate.round()),
            grouped(self.said as f64),
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
        if self.accepted < self.said {
            faults.push(format!("{name}: {} of {} beats were lost", self.said - self.accepted, self.said));
        }
        faults.extend(self.visibility.fault().map(|fault| format!("{name}: {fault}")));
        faults
    }
}
