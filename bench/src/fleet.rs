//! P3: a large fleet at rest: everybody beats once in ten seconds, has an actor of its own, and nothing happens.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::figure::{grouped, mebibytes};
use crate::load::fleet::{Load, Silenced};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::Stage;
use crate::table::Table;
use crate::timeline::Timeline;
use crate::usage::{Meter, Usage};
use crate::verdicts::Verdicts;
use crate::visibility;

const SCENARIO: &str = "fleet";
const FALSE_VERDICTS: Goal = Goal::zero("P3");
const LEADER_GOAL: Goal = Goal::at_most("P3", 12_000.0);
const FOLLOWER_GOAL: Goal = Goal::at_most("P3", 3_000.0);
const CPU_GOAL: Goal = Goal::at_most("P3", 1.0);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    let duration = setting.duration(5, 600);
    stage.on_duty(load.nodes).await?;
    let verdicts = Verdicts::watch(&stage.client).await?;
    let (first, said_before) = (stage.cluster.accepted().await?, load.tally.beats.load(Ordering::Relaxed));
    let meter = Meter::start(&stage.processes()?);
    let (start, mut timeline) = (Instant::now(), Timeline::default());
    let mut last = (first.clone(), start);
    while start.elapsed() < duration {
        sleep(SAMPLE_EVERY.min(duration)).await;
        let now = (stage.cluster.accepted().await?, Instant::now());
        let rate = now.0.since(&last.0).total() as f64 / (now.1 - last.1).as_secs_f64();
        timeline.push("accepted", "beats/s", start.elapsed().as_secs_f64(), rate);
        let elapsed = start.elapsed().as_secs();
        progress::say(format_args!(
            "{elapsed} s: {} beats/s, {} held for lost",
            grouped(rate.round()),
            verdicts.count()
        ));
        last = now;
    }
    let (elapsed, usage) = (start.elapsed().as_secs_f64(), meter.stop());
    let said = load.tally.beats.load(Ordering::Relaxed) - said_before;
    let accepted = stage.settled(&first, said).await?;
    let visibility = visibility::check(&stage.cluster).await?;
    let leader = stage.cluster.leader().await?;
    let (seen, ready) = (verdicts.seen(), stage.client.status().await?.nodes_ready);
    let cores = usage.server_cpu_seconds() / elapsed;
    let memory = Memory::of(&usage, leader);
    let mut table = Table::new(
        format!("{} nodes on {} streams for {elapsed:.0} s, an actor each", load.nodes, load.streams()),
        &["beats/s", "said", "accepted", "false verdicts", "leader MB", "follower MB", "server cores"],
    );
    table.row([
        grouped((accepted as f64 / elapsed).round()),
        grouped(said as f64),
        grouped(accepted as f64),
        seen.unknown.len().to_string(),
        format!("{:.0}", memory.leader),
        format!("{:.0}", memory.follower),
        format!("{cores:.2}"),
    ]);
    let mut outcome = Outcome { tables: vec![table, usage.table_per_beats(accepted)], timeline, ..Outcome::default() };
    outcome.faults.extend(seen.faults(&Silenced::new()));
    if accepted < said {
        outcome.faults.push(format!("{} of {said} beats were lost", said - accepted));
    }
    outcome.faults.extend(visibility.fault());
    if ready != load.nodes as u64 {
        outcome.faults.push(format!("{ready} of {} nodes are ready, and all of them beat", load.nodes));
    }
    let detailed = |goal, what, value, unit| {
        Finding::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("streams", load.streams())
            .with("multiplexed", "many nodes per stream")
            .with("seconds", elapsed)
    };
    outcome.findings = vec![
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
    fn of(usage: &Usage, leader: u64) -> Self {
        let megabytes = |bytes: u64| mebibytes(bytes) * 1.048_576;
        let leader = crate::cluster::label(leader);
        let followers = usage
            .processes
            .iter()
            .filter(|process| process.label != leader && process.label != crate::usage::GENERATOR);
        Self {
            leader: usage.of(&leader).map_or(0.0, |process| megabytes(process.rss_peak_bytes)),
            follower: followers.map(|process| megabytes(process.rss_peak_bytes)).fold(0.0, f64::max),
        }
    }
}
