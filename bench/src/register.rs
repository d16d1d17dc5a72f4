//! P4: how fast nodes are registered, each with all that a real agent says of its machine.

use anyhow::{Context, Result};

use crate::garrison::{Garrison, Step};
use crate::outcome::{Finding, Goal, Outcome};
use crate::setting::Setting;
use crate::table::Table;

const SCENARIO: &str = "register";
const GOAL: Goal = Goal::at_least("P4", 33_000.0);

/// A fleet that grew step by step is judged by its last one, which is nearly all of it.
pub async fn measure(garrison: &mut Garrison, _: &Setting) -> Result<Outcome> {
    garrison.whole().await?;
    let last = garrison.steps.last().filter(|step| step.after() == garrison.load.nodes);
    Ok(outcome(last.context("the fleet is there, but nobody saw it come")?))
}

fn outcome(step: &Step) -> Outcome {
    let Step { before, nodes, seconds, streams, refused, usage } = step;
    let (rate, cpu) = (*nodes as f64 / seconds, step.cpu_us_per_node());
    let mut table = Table::new(
        format!("{nodes} nodes registered over {streams} streams beside {before}"),
        &["nodes/s", "seconds", "server cpu us/node", "refused"],
    );
    table.row([format!("{rate:.0}"), format!("{seconds:.1}"), format!("{cpu:.0}"), refused.to_string()]);
    let finding = Finding::new(SCENARIO, GOAL, "registered", rate, "nodes/s")
        .with("nodes", *nodes)
        .with("beside", *before)
        .with("streams", *streams)
        .with("multiplexed", "many nodes per stream")
        .with("refused_and_tried_again", *refused)
        .with("server_cpu_us_per_node", cpu);
    let tables = vec![table, usage.table_per_beats(*nodes as u64)];
    let mut outcome = Outcome { findings: vec![finding], tables, ..Outcome::default() };
    outcome.timeline.extend(usage.series.clone());
    outcome
}
