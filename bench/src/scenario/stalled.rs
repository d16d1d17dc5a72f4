//! `stalled` (guard rail): a peer that does not read gets no more, and no other peer suffers from it, least of all
//! nodes that beat.
//!
//! Three kinds of such peers run at once beside a fleet that behaves. Operators never read their watches while nodes
//! change. One stream of an aggregator takes no answers while its other streams beat on the same connection. Another
//! aggregator does not read its connection at all for a while and then begins anew.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use muster_client::{Client, Query, Watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::FleetLoad;
use crate::load::node;
use crate::load::paced::{Behaviour, PacedStreams, StreamPlan};
use crate::measure::no_false_verdicts::{FalseVerdictGuard, GuardResult};
use crate::measure::recovery::Recovery;
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::measure::visibility::{self, Visibility};
use crate::report::figure::{Figure, GUARD, Goal};
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::MeasuredTimeline;

const SCENARIO: &str = "stalled";
/// Streams on the connection of which one takes no answers.
const NO_ANSWERS: usize = 64;
/// Streams on the connection that is not read.
const UNREAD: usize = 256;
/// For how long it is not read. The small one ends well within the small grace period: its nodes are silent meanwhile.
const UNREAD_FOR: Duration = Duration::from_secs(15);
const UNREAD_FOR_SMALL: Duration = Duration::from_secs(4);
/// Watches that are never read, at each replica, with a connection each.
const WATCHES: usize = 4;
const WRITERS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(60);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// All nodes that beat.
struct StalledLoad {
    fleet: FleetLoad,
    no_answers: PacedStreams,
    unread: PacedStreams,
}

struct Measured {
    nodes: usize,
    watches: usize,
    writes: u64,
    seconds: f64,
    /// Answers that were asked for by the stream that takes none.
    asked: u64,
    /// The number of the newest answer that came through nevertheless.
    answered: u64,
    /// Times that its connection was ended.
    ended: usize,
    /// Lost connections of the fleet that behaves.
    lost: usize,
    /// Seconds until the nodes of the connection that was not read were bound again.
    back: f64,
    visibility: Visibility,
    guarded: GuardResult,
    usage: ResourceUsage,
    timeline: MeasuredTimeline,
}

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (healthy, grace) = (options.nodes(3_000, 100_000), GRACE.of(options.scale));
    let bed = TestBed::start(options, healthy + NO_ANSWERS + UNREAD, &GRACE.flags(options.scale)).await?;
    let load = StalledLoad::start(&bed, healthy, grace).await?;
    let unread_for = options.scale.pick(UNREAD_FOR_SMALL, UNREAD_FOR);
    let measured = measure(&bed, &load, options.duration(8, 60), unread_for, grace).await?;
    Ok(measured.outcome())
}

async fn measure(
    bed: &TestBed,
    load: &StalledLoad,
    duration: Duration,
    unread_for: Duration,
    grace: Duration,
) -> Result<Measured> {
    let guard = FalseVerdictGuard::watch(&bed.client).await?;
    let lost = load.fleet.counts.lost.load(Ordering::Relaxed);
    let (meter, began, mut timeline) =
        (UsageMeter::start(&bed.processes()?), Instant::now(), MeasuredTimeline::default());
    let mut writers = write(bed, load.fleet.nodes, began + duration);
    let watches = unread_watches(bed).await?;
    progress::print(format_args!("{} watches and the answers to {UNREAD} streams are not read", watches.len()));
    load.unread.stop_reading(unread_for);
    let since = Instant::now();
    let recovery = Recovery { name: "bound", unit: "nodes", since, began, timeout: unread_for + TIMEOUT };
    let back = recovery.wait(&mut timeline, || load.unread.recovered()).await? - unread_for.as_secs_f64();
    while began.elapsed() < duration {
        sleep(SAMPLE_EVERY).await;
        timeline.push("fleet bound", "nodes", began.elapsed().as_secs_f64(), load.fleet.bound() as f64);
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut written = 0;
    while let Some(wrote) = writers.join_next().await {
        written += wrote??;
    }
    let usage = meter.stop();
    guard.watch_on(grace).await;
    let visibility = visibility::check(&bed.cluster).await?;
    let guarded = guard.end(&bed.client, load.nodes()).await?;
    let no_answers = &load.no_answers.counts;
    Ok(Measured {
        nodes: load.nodes(),
        watches: watches.len(),
        writes: written,
        seconds,
        asked: no_answers.asked.load(Ordering::Relaxed),
        answered: no_answers.answered.load(Ordering::Relaxed),
        ended: no_answers.lost.load(Ordering::Relaxed),
        lost: load.fleet.counts.lost.load(Ordering::Relaxed) - lost,
        back,
        visibility,
        guarded,
        usage,
        timeline,
    })
}

/// Opens watches with a connection each and reads the first event of each only.
async fn unread_watches(bed: &TestBed) -> Result<Vec<Watch>> {
    let from = bed.client.status().await?.revision;
    let mut clients = Vec::new();
    for _ in 0..WATCHES {
        clients.extend(bed.cluster.clients_by_replica()?.into_values());
    }
    let open = |client: Client| async move {
        let mut watch = client.watch(Query::of("nodes"), Some(from)).await?;
        timeout(TIMEOUT, watch.next()).await.context("a watch received no event while nodes changed")??;
        anyhow::Ok(watch)
    };
    try_join_all(clients.into_iter().map(open)).await
}

/// Changes nodes until then. Each writer returns the number of its writes.
fn write(bed: &TestBed, nodes: usize, until: Instant) -> JoinSet<Result<u64>> {
    let mut writers = JoinSet::new();
    for first in 0..WRITERS {
        let client = bed.client.sibling();
        writers.spawn(async move {
            let mut written = 0;
            for (round, number) in (first..nodes).step_by(WRITERS).cycle().enumerate() {
                if Instant::now() >= until {
                    break;
                }
                client.write(node::set_label(number, "round", format!("r{round}"))).await?;
                written += 1;
            }
            Ok(written)
        });
    }
    writers
}

// === impl StalledLoad ===

impl StalledLoad {
    /// Returns when every node is ready and has an actor.
    async fn start(bed: &TestBed, healthy: usize, grace: Duration) -> Result<Self> {
        let (no_answers, all) = (healthy + NO_ANSWERS, healthy + NO_ANSWERS + UNREAD);
        bed.register(all).await?;
        let fleet = bed.start_fleet(healthy).await?;
        let paced = |door, numbers, behaviour| {
            let (instance, interval) = (bed.instance, grace / 4);
            PacedStreams::start(&bed.doors, StreamPlan { numbers, connections: 1, door, instance, interval, behaviour })
        };
        let load = Self {
            fleet,
            no_answers: paced(0, healthy..no_answers, Behaviour::FirstTakesNoAnswers),
            unread: paced(1, no_answers..all, Behaviour::SmallBuffer),
        };
        load.no_answers.wait_bound().await?;
        load.unread.wait_bound().await?;
        bed.wait_watched(all).await?;
        Ok(load)
    }

    fn nodes(&self) -> usize {
        self.fleet.nodes + self.no_answers.nodes + self.unread.nodes
    }
}

// === impl Measured ===

impl Measured {
    fn table(&self) -> ReportTable {
        let title = format!("{} nodes that beat, {} watches that are not read", self.nodes, self.watches);
        let header =
            ["writes/s", "answers asked for", "newest taken", "cut off", "back after s", "late", "false verdicts"];
        let mut table = ReportTable::new(title, &header);
        table.row([
            grouped(self.write_rate().round()),
            self.asked.to_string(),
            self.answered.to_string(),
            self.ended.to_string(),
            format!("{:.1}", self.back),
            self.visibility.late.to_string(),
            self.guarded.false_verdicts.to_string(),
        ]);
        table
    }

    fn write_rate(&self) -> f64 {
        self.writes as f64 / self.seconds.max(f64::EPSILON)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.guarded.faults.clone();
        if self.ended > 0 {
            faults.push(format!("the connection with a stalled stream ended {} times", self.ended));
        }
        // Answers come until the window is full, and a replica may answer several questions at once.
        if self.answered >= self.asked / 2 {
            faults.push(format!("answer {} of {} came, so the stream did not stall", self.answered, self.asked));
        }
        if self.lost > 0 {
            faults.push(format!("{} connections of the fleet ended by themselves", self.lost));
        }
        faults.extend(self.visibility.fault());
        faults
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |goal, what, value, unit| self.detailed(Figure::new(SCENARIO, goal, what, value, unit));
        vec![
            self.detailed(self.guarded.figure(SCENARIO)),
            figure(Goal::zero(GUARD), "late at the leader", self.visibility.late as f64, "nodes"),
            figure(Goal::zero(GUARD), "connections with a stalled stream cut off", self.ended as f64, "connections"),
            figure(Goal::reported(GUARD), "until the connection that was not read is back", self.back, "s"),
            figure(Goal::reported(GUARD), "writes meanwhile", self.write_rate(), "writes/s"),
        ]
    }

    fn detailed(&self, figure: Figure) -> Figure {
        figure
            .with("nodes", self.nodes)
            .with("unread_watches", self.watches)
            .with("streams_beside_the_stalled_one", NO_ANSWERS - 1)
            .with("streams_not_read", UNREAD)
            .with("answers_asked_for", self.asked)
            .with("newest_answer_taken", self.answered)
            .with("multiplexed", "many nodes per stream; one stream per node where something stalls")
            .with("seconds", self.seconds)
    }

    fn outcome(self) -> ScenarioOutcome {
        let (figures, faults) = (self.figures(), self.faults());
        let tables = vec![self.table(), self.usage.table()];
        let mut timeline = self.timeline;
        timeline.extend(self.usage.series);
        ScenarioOutcome { figures, tables, timeline, faults, ..ScenarioOutcome::default() }
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
            guarded: GuardResult::default(),
            usage: ResourceUsage::default(),
            timeline: MeasuredTimeline::default(),
        }
    }

    #[test]
    fn any_effect_of_a_stalled_reader_on_others_is_a_fault() {
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
