//! P6: kill -9 of the leader of a large fleet while nodes die all the time. Verdicts go on soon, nobody is held for lost
//! who lives, and who died meanwhile is found.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::seq::IteratorRandom;
use tokio::time::{sleep, sleep_until};

use crate::load::fleet::{Load, Silenced};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::usage::Meter;
use crate::verdicts::Verdicts;

const SCENARIO: &str = "failover";
const RESUME_GOAL: Goal = Goal::at_most("P6", 3.0);
const CAUGHT_GOAL: Goal = Goal::at_most("P6", 3.0);
const FALSE_GOAL: Goal = Goal::zero("P6");
/// So many die at a time, so often, and for so long before the first of them is due and after.
const GROUP: usize = 20;
const GROUP_SMALL: usize = 2;
const GROUP_EVERY: Duration = Duration::from_millis(250);
const DYING_FOR: Duration = Duration::from_secs(64);
const DYING_FOR_SMALL: Duration = Duration::from_secs(16);
/// After the first deadline.
const KILL_AFTER: Duration = Duration::from_secs(12);
const KILL_AFTER_SMALL: Duration = Duration::from_secs(4);
/// Whoever takes over in a younger cluster gives everybody time to come back before it judges anybody.
const AGE: Duration = Duration::from_secs(130);
/// Beyond another grace after the kill: by then whoever is falsely held for lost would have been.
const WATCH_ON: Duration = Duration::from_secs(15);
const WATCH_ON_SMALL: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);
/// As agents are told to beat, if the grace is not shorter than four of these.
const BEAT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The killed replica stays away.
pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    let grace = GRACE.of(setting.scale);
    stage.on_duty(load.nodes).await?;
    stage.aged(setting.scale.pick(Duration::ZERO, AGE)).await;
    let verdicts = Verdicts::watch(&stage.client).await?;
    let leader = stage.cluster.leader().await?;
    let meter = Meter::start(&stage.processes()?);
    let kill_at = tokio::time::Instant::now() + grace + setting.scale.pick(KILL_AFTER_SMALL, KILL_AFTER);
    let (silenced, killed) = tokio::join!(die(load, setting), async {
        sleep_until(kill_at).await;
        progress::say(format_args!("kill -9 of replica {leader}, which leads"));
        stage.cluster.kill(leader).map(|()| Instant::now())
    });
    let (silenced, killed) = (silenced?, killed?);
    let found = verdicts.wait(silenced.len(), grace + PATIENCE).await?;
    sleep((killed + grace + setting.scale.pick(WATCH_ON_SMALL, WATCH_ON)).saturating_duration_since(Instant::now()))
        .await;
    let seen = verdicts.seen();
    let usage = meter.stop();
    let due_later = |number: &usize| silenced.get(number).is_some_and(|last| *last + grace > killed);
    let resumed = found.unknown.iter().filter(|(number, _)| due_later(number)).map(|(_, at)| *at).min();
    let resumed = resumed.context("no verdict after the kill")?;
    let gap = resumed.duration_since(killed).as_secs_f64();
    let groups = Groups::of(&silenced, grace, killed..resumed);
    ensure!(!groups.during.is_empty(), "nobody died during the failover");
    let caught = seen.beyond_grace(&groups.during, grace);
    let innocent = seen.innocent(&silenced);
    let mut table = Table::new(
        format!("{} nodes, {} of them die around the kill, grace {} s", load.nodes, silenced.len(), grace.as_secs()),
        &["died", "nodes", "beyond grace: p50 s", "p99 s", "max s"],
    );
    for (died, group) in [("during the failover", &groups.during), ("before, due after the kill", &groups.before)] {
        let late = seen.beyond_grace(group, grace);
        let spread = late.spread_ms().map(|millis| format!("{:.2}", millis / 1_000.0));
        table.row([vec![died.to_owned(), late.len().to_string()], spread.to_vec()].concat());
    }
    let detailed = |goal, what, value, unit| {
        Finding::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("silent", silenced.len())
            .with("died_during_the_failover", groups.during.len())
            .with("grace_s", grace.as_secs())
            .with("streams_lost", load.tally.lost.load(Ordering::Relaxed))
            .with("multiplexed", "many nodes per stream")
    };
    let mut outcome =
        Outcome { tables: vec![table, usage.table_per_beats(silenced.len() as u64)], ..Outcome::default() };
    outcome.findings = vec![
        detailed(RESUME_GOAL, "first verdict after the kill", gap, "s"),
        detailed(
            CAUGHT_GOAL,
            "slowest verdict on who died during the failover, beyond grace",
            caught.spread_ms()[2] / 1_000.0,
            "s",
        ),
        detailed(FALSE_GOAL, "false verdicts", innocent as f64, "nodes"),
    ];
    outcome.faults.extend(seen.faults(&silenced));
    outcome.timeline.extend(usage.series);
    Ok(outcome)
}

/// Of those who died, the ones whose verdicts the failover may have held up.
struct Groups {
    /// Their last beat was at most one interval before the kill, or came before there was a leader again.
    during: Silenced,
    /// Dead for longer, and due after the kill. If they were last heard through the killed replica, they get the window
    /// that its agents have to come back in.
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

async fn die(load: &Load, setting: &Setting) -> Result<Silenced> {
    let group = setting.scale.pick(GROUP_SMALL, GROUP);
    let groups = setting.scale.pick(DYING_FOR_SMALL, DYING_FOR).as_millis() / GROUP_EVERY.as_millis();
    let dying = (0..load.nodes).sample(&mut rand::rng(), group * usize::try_from(groups)?);
    let (mut silenced, mut next) = (Silenced::new(), tokio::time::Instant::now());
    for group in dying.chunks(group) {
        silenced.extend(load.silence(group).await?);
        next += GROUP_EVERY;
        sleep_until(next).await;
    }
    Ok(silenced)
}
