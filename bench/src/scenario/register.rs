//! `register` (P4): nodes registered per second, each with all that a real agent reports.

use anyhow::{Context, Result};

use crate::harness::options::BenchOptions;
use crate::harness::shared_fleet::{GrowthStep, SharedFleet};
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const SCENARIO: &str = "register";
const GOAL: Goal = Goal::at_least("P4", 33_000.0);

/// A fleet that grew step by step is measured by its last step, which is nearly all of it.
pub(super) async fn measure(fleet: &mut SharedFleet, _: &BenchOptions) -> Result<ScenarioOutcome> {
    fleet.whole().await?;
    let last = fleet.steps.last().filter(|step| step.after() == fleet.load.nodes);
    Ok(outcome(last.context("the fleet was registered before this scenario could measure it")?))
}

fn outcome(step: &GrowthStep) -> ScenarioOutcome {
    let GrowthStep { before, nodes, seconds, streams, refused, usage } = step;
    let (rate, cpu) = (*nodes as f64 / seconds, step.cpu_us_per_node());
    let mut table = ReportTable::new(
        format!("{nodes} nodes registered over {streams} streams beside {before}"),
        &["nodes/s", "seconds", "server cpu us/node", "refused"],
    );
    table.row([format!("{rate:.0}"), format!("{seconds:.1}"), format!("{cpu:.0}"), refused.to_string()]);
    let figure = Figure::new(SCENARIO, GOAL, "registered", rate, "nodes/s")
        .with("nodes", *nodes)
        .with("beside", *before)
        .with("streams", *streams)
        .with("multiplexed", "many nodes per stream")
        .with("refused_and_tried_again", *refused)
        .with("server_cpu_us_per_node", cpu);
    let tables = vec![table, usage.table_per_beats(*nodes as u64)];
    let mut outcome = ScenarioOutcome { figures: vec![figure], tables, ..ScenarioOutcome::default() };
    outcome.timeline.extend(usage.series.clone());
    outcome
}
