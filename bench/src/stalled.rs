//! A guard rail: whoever does not read what it is told gets no more, and nobody else suffers for it, least of all nodes
//! that beat.
//!
//! Three kinds of them at once beside a fleet that behaves: operators whose watches are never read while nodes change, an
//! aggregator of which one stream takes no answers while others beat on the same connection, and one that does not read
//! its connection at all for a while and then begins anew.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use muster_client::{Client, Query, Watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::calm::{Calm, Disturbance};
use crate::comeback::Comeback;
use crate::figure::grouped;
use crate::load::fleet::Load;
use crate::load::paced::{Manner, Paced, Plan};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{Meter, Usage};
use crate::visibility::{self, Visibility};
use crate::writes;

const SCENARIO: &str = "stalled";
const GUARD: &str = "guard";
/// Streams on the connection of which one takes no answers.
const CHOKING: usize = 64;
/// Streams on the connection that is not read.
const DEAF: usize = 256;
/// For how long it is not read. The small one ends well within the small grace: who falls silent over it is missed.
const DEAF_FOR: Duration = Duration::from_secs(15);
const DEAF_FOR_SMALL: Duration = Duration::from_secs(4);
/// Watches that are never read, at each replica, on a connection each.
const WATCHES: usize = 4;
const WRITERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Beyond another grace: by then whoever is falsely held for lost would have been.
const WATCH_ON: Duration = Duration::from_secs(3);

/// All who beat.
struct Cast {
    load: Load,
    choking: Paced,
    deaf: Paced,
}

struct Measured {
    nodes: usize,
    watches: usize,
    writes: u64,
    seconds: f64,
    /// By the stream that takes no answers.
    asked: u64,
    /// The number of the newest answer that came through nevertheless.
    answered: u64,
    /// Times that its connection was ended.
    ended: usize,
    /// Connections of the fleet that behaves.
    lost: usize,
    /// Until those who did not read were bound again.
    back: f64,
    visibility: Visibility,
    disturbance: Disturbance,
    usage: Usage,
    timeline: Timeline,
}

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (healthy, grace) = (setting.nodes(3_000, 100_000), GRACE.of(setting.scale));
    let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
    let cast = Cast::start(&stage, healthy, grace).await?;
    let deaf_for = setting.scale.pick(DEAF_FOR_SMALL, DEAF_FOR);
    let measured = measure(&stage, &cast, setting.duration(8, 60), deaf_for, grace).await?;
    Ok(measured.outcome())
}

async fn measure(
    stage: &Stage,
    cast: &Cast,
    duration: Duration,
    deaf_for: Duration,
    grace: Duration,
) -> Result<Measured> {
    let calm = Calm::watch(&stage.client).await?;
    let lost = cast.load.tally.lost.load(Ordering::Relaxed);
    let (meter, began, mut timeline) = (Meter::start(&stage.processes()?), Instant::now(), Timeline::default());
    let mut writers = write(stage, cast.load.nodes, began + duration);
    let watches = unread(stage).await?;
    progress::say(format_args!("{} watches are not read, nor are answers to {DEAF} streams", watches.len()));
    cast.deaf.deafen(deaf_for);
    let since = Instant::now();
    let comeback = Comeback { name: "bound", unit: "nodes", since, began, patience: deaf_for + PATIENCE };
    let back = comeback.wait(&mut timeline, || cast.deaf.back(1)).await? - deaf_for.as_secs_f64();
    while began.elapsed() < duration {
        sleep(SAMPLE_EVERY).await;
        timeline.push("fleet bound", "nodes", began.elapsed().as_secs_f64(), cast.load.bound() as f64);
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut written = 0;
    while let Some(wrote) = writers.join_next().await {
        written += wrote??;
    }
    let usage = meter.stop();
    sleep(grace + WATCH_ON).await;
    let visibility = visibility::check(&stage.cluster).await?;
    let disturbance = calm.end(&stage.client, cast.nodes()).await?;
    let choking = &cast.choking.tally;
    Ok(Measured {
        nodes: cast.nodes(),
        watches: watches.len(),
        writes: written,
        seconds,
        asked: choking.asked.load(Ordering::Relaxed),
        answered: choking.answered.load(Ordering::Relaxed),
        ended: choking.lost.load(Ordering::Relaxed),
        lost: cast.load.tally.lost.load(Ordering::Relaxed) - lost,
        back,
        visibility,
        disturbance,
        usage,
        timeline,
    })
}

/// Watches with a connection each, of which only the first event is taken.
async fn unread(stage: &Stage) -> Result<Vec<Watch>> {
    let from = stage.client.status().await?.revision;
    let mut clients = Vec::new();
    for _ in 0..WATCHES {
        clients.extend(stage.cluster.clients_by_replica()?.into_values());
    }
    let open = |client: Client| async move {
        let mut watch = client.watch(Query::of("nodes"), Some(from)).await?;
        timeout(PATIENCE, watch.next()).await.context("a watch was told nothing while nodes changed")??;
        anyhow::Ok(watch)
    };
    try_join_all(clients.into_iter().map(open)).await
}

/// Nodes change until then; each writer says how often.
fn write(stage: &Stage, nodes: usize, until: Instant) -> JoinSet<Result<u64>> {
    let mut writers = JoinSet::new();
    for first in 0..WRITERS {
        let client = stage.client.sibling();
        writers.spawn(async move {
            let mut written = 0;
            for (round, number) in (first..nodes).step_by(WRITERS).cycle().enumerate() {
                if Instant::now() >= until {
                    break;
                }
                client.write(writes::label(number, round)).await?;
                written += 1;
            }
            Ok(written)
        });
    }
    writers
}

// === impl Cast ===

impl Cast {
    /// Everybody is ready and has an actor when this returns.
    async fn start(stage: &Stage, healthy: usize, grace: Duration) -> Result<Self> {
        let (choking, all) = (healthy + CHOKING, healthy + CHOKING + DEAF);
        stage.registered(all).await?;
        let (load, _) = stage.fleet(healthy).await?;
        let paced = |door, numbers, manner| {
            let (instance, interval) = (stage.instance, grace / 4);
            Paced::start(&stage.doors, Plan { numbers, connections: 1, door, instance, interval, manner })
        };
        let cast = Self {
            load,
            choking: paced(0, healthy..choking, Manner::Choking),
            deaf: paced(1, choking..all, Manner::Narrow),
        };
        cast.choking.wait_bound().await?;
        cast.deaf.wait_bound().await?;
        stage.on_duty(all).await?;
        Ok(cast)
    }

    fn nodes(&self) -> usize {
        self.load.nodes + self.choking.nodes + self.deaf.nodes
    }
}

// === impl Measured ===

impl Measured {
    fn table(&self) -> Table {
        let title = format!("{} nodes that beat, {} watches that are not read", self.nodes, self.watches);
        let header =
            ["writes/s", "answers asked for", "newest taken", "cut off", "back after s", "late", "false verdicts"];
        let mut table = Table::new(title, &header);
        table.row([
            grouped(self.write_rate().round()),
            self.asked.to_string(),
            self.answered.to_string(),
            self.ended.to_string(),
            format!("{:.1}", self.back),
            self.visibility.late.to_string(),
            self.disturbance.condemned.to_string(),
        ]);
        table
    }

    fn write_rate(&self) -> f64 {
        self.writes as f64 / self.seconds.max(f64::EPSILON)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.disturbance.faults.clone();
        if self.ended > 0 {
            faults.push(format!("the connection with a stalled stream ended {} times", self.ended));
        }
        // Until the window is full, answers come; and a replica may answer several questions at once.
        if self.answered >= self.asked / 2 {
            faults.push(format!("answer {} of {} came: nothing has stalled", self.answered, self.asked));
        }
        if self.lost > 0 {
            faults.push(format!("{} connections of the fleet ended by themselves", self.lost));
        }
        faults.extend(self.visibility.fault());
        faults
    }

    fn findings(&self) -> Vec<Finding> {
        let finding = |goal, what, value, unit| self.detailed(Finding::new(SCENARIO, goal, what, value, unit));
        vec![
            self.detailed(self.disturbance.finding(SCENARIO)),
            finding(Goal::zero(GUARD), "late at the leader", self.visibility.late as f64, "nodes"),
            finding(Goal::zero(GUARD), "connections with a stalled stream cut off", self.ended as f64, "connections"),
            finding(Goal::told(GUARD), "until those who did not read are back", self.back, "s"),
            finding(Goal::told(GUARD), "writes meanwhile", self.write_rate(), "writes/s"),
        ]
    }

    fn detailed(&self, finding: Finding) -> Finding {
        finding
            .with("nodes", self.nodes)
            .with("unread_watches", self.watches)
            .with("streams_beside_the_stalled_one", CHOKING - 1)
            .with("streams_not_read", DEAF)
            .with("answers_asked_for", self.asked)
            .with("newest_answer_taken", self.answered)
            .with("multiplexed", "many nodes per stream; one stream per node where something stalls")
            .with("seconds", self.seconds)
    }

    fn outcome(self) -> Outcome {
        let (findings, faults) = (self.findings(), self.faults());
        let tables = vec![self.table(), self.usage.table()];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        Outcome { findings, tables, timeline, faults, ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            nodes: 3_320,
            watches: 12,
            writes: 1_000,
            seconds: 10.0,
            asked: 300,
            answered: 40,
            ended: 0,
            lost: 0,
            back: 0.5,
            visibility: Visibility::default(),
            disturbance: Disturbance::default(),
            usage: Usage::default(),
            timeline: Timeline::default(),
        }
    }

    #[test]
    fn whatever_a_stalled_reader_did_to_others_is_a_fault() {
        let late = Visibility { nodes: 10, late: 1, worst: Duration::from_secs(2) };
        for (measured, faults) in [
            (measured(), 0),
            (Measured { ended: 1, ..measured() }, 1),
            (Measured { answered: 300, ..measured() }, 1),
            (Measured { lost: 1, ..measured() }, 1),
            (Measured { visibility: late, ..measured() }, 1),
        ] {
            assert_eq!(measured.faults().len(), faults, "{:?}", measured.faults());
        }
    }
}
