//! P5: how soon a silent node is found in a large fleet, from its last beat to the committed verdict that a watcher sees.

use std::time::{Duration, Instant};

use anyhow::Result;
use rand::seq::IteratorRandom;
use tokio::time::sleep;

use crate::load::fleet::{Load, Silenced};
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress;
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::verdicts::Verdicts;

const SCENARIO: &str = "detect";
const GOAL: Goal = Goal::at_most("P5", 1.0);
/// So many nodes die, in groups a second apart.
const DYING: usize = 1_000;
const DYING_SMALL: usize = 30;
const GROUPS: usize = 10;
/// Beyond the grace, until a node that was not found is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    let grace = GRACE.of(setting.scale);
    stage.on_duty(load.nodes).await?;
    let verdicts = Verdicts::watch(&stage.client).await?;
    let dying = (0..load.nodes).sample(&mut rand::rng(), setting.scale.pick(DYING_SMALL, DYING).min(load.nodes));
    progress::say(format_args!("{} nodes fall silent over {GROUPS} s", dying.len()));
    let (began, mut silenced) = (Instant::now(), Silenced::new());
    for group in dying.chunks(dying.len().div_ceil(GROUPS)) {
        silenced.extend(load.silence(group).await?);
        sleep(Duration::from_secs(1)).await;
    }
    let seen = verdicts.wait(silenced.len(), grace + PATIENCE).await?;
    let late = seen.beyond_grace(&silenced, grace);
    let [p50, p99, max] = late.spread_ms().map(|millis| millis / 1_000.0);
    let innocent = seen.innocent(&silenced);
    let mut table = Table::new(
        format!("{} of {} nodes fell silent, grace {} s", silenced.len(), load.nodes, grace.as_secs()),
        &["found", "beyond grace: p50 s", "p99 s", "max s", "false verdicts"],
    );
    let figures = [p50, p99, max].map(|seconds| format!("{seconds:.2}"));
    table.row([vec![late.len().to_string()], figures.to_vec(), vec![innocent.to_string()]].concat());
    let finding = Finding::new(SCENARIO, GOAL, "p99 beyond grace", p99, "s")
        .with("nodes", load.nodes)
        .with("silent", silenced.len())
        .with("grace_s", grace.as_secs())
        .with("multiplexed", "many nodes per stream")
        .with("p50_s", p50)
        .with("max_s", max);
    let mut outcome = Outcome { findings: vec![finding], tables: vec![table], ..Outcome::default() };
    outcome.timeline = seen.timeline(&silenced, grace, began);
    outcome.faults.extend(seen.faults(&silenced));
    outcome.faults.extend(stage.revive(load, &silenced).await.err().map(|why| format!("after it: {why:#}")));
    Ok(outcome)
}
