//! `detect` (P5): how soon a silent node of a large fleet is marked Unknown, from its last beat to the committed
//! verdict that a watcher sees.

use std::time::{Duration, Instant};

use anyhow::Result;
use rand::seq::IteratorRandom;
use tokio::time::sleep;

use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::{GRACE, TestBed};
use crate::load::fleet::{FleetLoad, Silenced};
use crate::measure::verdicts::VerdictWatch;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const SCENARIO: &str = "detect";
const GOAL: Goal = Goal::at_most("P5", 1.0);
/// So many nodes fall silent, in groups a second apart.
const DYING: usize = 1_000;
const DYING_SMALL: usize = 30;
const GROUPS: usize = 10;
/// How long to wait for verdicts, beyond the grace period.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn measure(bed: &TestBed, load: &FleetLoad, options: &BenchOptions) -> Result<ScenarioOutcome> {
    let grace = GRACE.of(options.scale);
    bed.wait_watched(load.nodes).await?;
    let verdicts = VerdictWatch::watch(&bed.client).await?;
    let dying = (0..load.nodes).sample(&mut rand::rng(), options.scale.pick(DYING_SMALL, DYING).min(load.nodes));
    progress::print(format_args!("{} nodes fall silent over {GROUPS} s", dying.len()));
    let (began, mut silenced) = (Instant::now(), Silenced::new());
    for group in dying.chunks(dying.len().div_ceil(GROUPS)) {
        silenced.extend(load.silence(group).await?);
        sleep(Duration::from_secs(1)).await;
    }
    let seen = verdicts.wait(silenced.len(), grace + TIMEOUT).await?;
    let late = seen.beyond_grace(&silenced, grace);
    let [p50, p99, max] = late.spread_ms().map(|millis| millis / 1_000.0);
    let false_verdicts = seen.false_verdicts(&silenced);
    let mut table = ReportTable::new(
        format!("{} of {} nodes fell silent, grace {} s", silenced.len(), load.nodes, grace.as_secs()),
        &["found", "beyond grace: p50 s", "p99 s", "max s", "false verdicts"],
    );
    let figures = [p50, p99, max].map(|seconds| format!("{seconds:.2}"));
    table.row([vec![late.len().to_string()], figures.to_vec(), vec![false_verdicts.to_string()]].concat());
    let figure = Figure::new(SCENARIO, GOAL, "p99 beyond grace", p99, "s")
        .with("nodes", load.nodes)
        .with("silent", silenced.len())
        .with("grace_s", grace.as_secs())
        .with("multiplexed", "many nodes per stream")
        .with("p50_s", p50)
        .with("max_s", max);
    let mut outcome = ScenarioOutcome { figures: vec![figure], tables: vec![table], ..ScenarioOutcome::default() };
    outcome.timeline = seen.timeline(&silenced, grace, began);
    outcome.faults.extend(seen.faults(&silenced));
    outcome
        .faults
        .extend(bed.revive(load, &silenced).await.err().map(|why| format!("the nodes did not recover: {why:#}")));
    Ok(outcome)
}
