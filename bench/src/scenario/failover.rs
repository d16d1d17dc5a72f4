//! `failover` (P6): kill -9 of the leader of a large fleet while nodes fall silent all the time. Verdicts go on soon,
//! none is false, and the nodes that fell silent during the failover are found.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::seq::IteratorRandom;
use tokio::time::{sleep, sleep_until};

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::{FleetLoad, Silenced};
use crate::measure::usage::UsageMeter;
use crate::measure::verdicts::VerdictWatch;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const SCENARIO: &str = "failover";
const RESUME_GOAL: Goal = Goal::at_most("P6", 3.0);
const CAUGHT_GOAL: Goal = Goal::at_most("P6", 3.0);
/// Nodes that were silent before the kill get no window from it: they are late by the time without a leader at most.
const BEFORE_GOAL: Goal = Goal::reported("P6");
const FALSE_GOAL: Goal = Goal::zero("P6");
/// So many nodes fall silent at a time, so often, and for so long.
const GROUP: usize = 20;
const GROUP_SMALL: usize = 2;
const GROUP_EVERY: Duration = Duration::from_millis(250);
const DYING_FOR: Duration = Duration::from_secs(64);
const DYING_FOR_SMALL: Duration = Duration::from_secs(16);
/// When the leader is killed, after the first deadline.
const KILL_AFTER: Duration = Duration::from_secs(12);
const KILL_AFTER_SMALL: Duration = Duration::from_secs(4);
/// In a younger cluster, a new leader gives all nodes time to come back before it judges any.
const AGE: Duration = Duration::from_secs(130);
/// Beyond another grace period after the kill: by then any false verdict that is to come has come.
const WATCH_ON: Duration = Duration::from_secs(15);
const WATCH_ON_SMALL: Duration = Duration::from_secs(4);
const TIMEOUT: Duration = Duration::from_secs(60);
/// The interval that agents are told to beat at, unless the grace period is shorter than four of these.
const BEAT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The killed replica stays away.
pub(super) async fn measure(bed: &TestBed, load: &FleetLoad, options: &BenchOptions) -> Result<ScenarioOutcome> {
    let grace = GRACE.of(options.scale);
    bed.wait_watched(load.nodes).await?;
    bed.wait_age(options.scale.pick(Duration::ZERO, AGE)).await;
    let verdicts = VerdictWatch::watch(&bed.client).await?;
    let leader = bed.cluster.leader().await?;
    let meter = UsageMeter::start(&bed.processes()?);
    let kill_at = tokio::time::Instant::now() + grace + options.scale.pick(KILL_AFTER_SMALL, KILL_AFTER);
    let (silenced, killed) = tokio::join!(silence_groups(load, options), async {
        sleep_until(kill_at).await;
        progress::print(format_args!("kill -9 of replica {leader}, the leader"));
        bed.cluster.kill(leader).map(|()| Instant::now())
    });
    let (silenced, killed) = (silenced?, killed?);
    let found = verdicts.wait(silenced.len(), grace + TIMEOUT).await?;
    sleep((killed + grace + options.scale.pick(WATCH_ON_SMALL, WATCH_ON)).saturating_duration_since(Instant::now()))
        .await;
    let seen = verdicts.seen();
    let usage = meter.stop();
    let due_later = |number: &usize| silenced.get(number).is_some_and(|last| *last + grace > killed);
    let resumed = found.unknown.iter().filter(|(number, _)| due_later(number)).map(|(_, at)| *at).min();
    let resumed = resumed.context("no verdict after the kill")?;
    let gap = resumed.duration_since(killed).as_secs_f64();
    let groups = Groups::of(&silenced, grace, killed..resumed);
    ensure!(!groups.during.is_empty(), "no node fell silent during the failover");
    let caught = seen.beyond_grace(&groups.during, grace);
    let false_verdicts = seen.false_verdicts(&silenced);
    let mut table = ReportTable::new(
        format!("{} nodes, {} of them die around the kill, grace {} s", load.nodes, silenced.len(), grace.as_secs()),
        &["died", "nodes", "beyond grace: p50 s", "p99 s", "max s"],
    );
    for (died, group) in [("during the failover", &groups.during), ("before, due after the kill", &groups.before)] {
        let late = seen.beyond_grace(group, grace);
        let spread = late.spread_ms().map(|millis| format!("{:.2}", millis / 1_000.0));
        table.row([vec![died.to_owned(), late.len().to_string()], spread.to_vec()].concat());
    }
    let detailed = |goal, what, value, unit| {
        Figure::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("silent", silenced.len())
            .with("died_during_the_failover", groups.during.len())
            .with("grace_s", grace.as_secs())
            .with("streams_lost", load.counts.lost.load(Ordering::Relaxed))
            .with("multiplexed", "many nodes per stream")
    };
    let mut outcome = ScenarioOutcome {
        tables: vec![table, usage.table_per_beats(silenced.len() as u64)],
        ..ScenarioOutcome::default()
    };
    outcome.figures = vec![
        detailed(RESUME_GOAL, "first verdict after the kill", gap, "s"),
        detailed(
            CAUGHT_GOAL,
            "slowest verdict on a node that died during the failover, beyond grace",
            caught.spread_ms()[2] / 1_000.0,
            "s",
        ),
        detailed(
            BEFORE_GOAL,
            "slowest verdict on a node that died before the kill and was due after it, beyond grace",
            seen.beyond_grace(&groups.before, grace).spread_ms()[2] / 1_000.0,
            "s",
        ),
        detailed(FALSE_GOAL, "false verdicts", false_verdicts as f64, "nodes"),
    ];
    outcome.faults.extend(seen.faults(&silenced));
    outcome.timeline.extend(usage.series);
    Ok(outcome)
}

/// Nodes whose verdicts the failover may have delayed.
struct Groups {
    /// Their last beat was at most one interval before the kill, or came before there was a leader again.
    during: Silenced,
    /// Silent for longer, and due after the kill. Those that missed two beats, as most of them did, get no window from
    /// the death of their replica; the others are due when that window ends.
    before: Silenced,
}

impl Groups {
    fn of(silenced: &Silenced, grace: Duration, failover: Range<Instant>) -> Self {
        let interval = (grace / 4).min(BEAT_INTERVAL_MAX);
        let is_due = |last: &Instant| *last + grace > failover.start && *last < failover.end;
        let due = silenced.iter().filter(|(_, last)| is_due(last)).map(|(number, last)| (*number, *last));
        let (during, before) = due.partition(|(_, last)| *last + interval >= failover.start);
        Self { during, before }
    }
}

async fn silence_groups(load: &FleetLoad, options: &BenchOptions) -> Result<Silenced> {
    let group = options.scale.pick(GROUP_SMALL, GROUP);
    let groups = options.scale.pick(DYING_FOR_SMALL, DYING_FOR).as_millis() / GROUP_EVERY.as_millis();
    let dying = (0..load.nodes).sample(&mut rand::rng(), group * usize::try_from(groups)?);
    let (mut silenced, mut next) = (Silenced::new(), tokio::time::Instant::now());
    for group in dying.chunks(group) {
        silenced.extend(load.silence(group).await?);
        next += GROUP_EVERY;
        sleep_until(next).await;
    }
    Ok(silenced)
}
