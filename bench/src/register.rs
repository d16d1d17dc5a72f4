//! P4: how fast nodes are registered, each with all that a real agent says of its machine.

use anyhow::Result;

use crate::load::fleet::Load;
use crate::outcome::{Finding, Goal, Outcome};
use crate::setting::Setting;
use crate::stage::{GRACE, Stage};
use crate::table::Table;
use crate::usage::Meter;

const SCENARIO: &str = "register";
const GOAL: Goal = Goal::at_least("P4", 33_000.0);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let stage = Stage::set(setting, &GRACE.flags(setting.scale)).await?;
    let (_, outcome) = measure(&stage, setting.nodes(3_000, 1_000_000)).await?;
    Ok(outcome)
}

/// The fleet goes on beating.
pub async fn measure(stage: &Stage, nodes: usize) -> Result<(Load, Outcome)> {
    let meter = Meter::start(&stage.processes()?);
    let (load, registered) = stage.fleet(nodes).await?;
    let usage = meter.stop();
    let rate = nodes as f64 / registered.seconds;
    let mut table = Table::new(
        format!("{nodes} nodes registered over {} streams", load.streams()),
        &["nodes/s", "seconds", "server cpu us/node", "refused"],
    );
    let cpu = usage.server_cpu_seconds() * 1e6 / nodes as f64;
    let refused = load.tally.refused.load(std::sync::atomic::Ordering::Relaxed);
    table.row([format!("{rate:.0}"), format!("{:.1}", registered.seconds), format!("{cpu:.0}"), refused.to_string()]);
    let finding = Finding::new(SCENARIO, GOAL, "registered", rate, "nodes/s")
        .with("nodes", nodes)
        .with("streams", load.streams())
        .with("multiplexed", "many nodes per stream")
        .with("refused_and_tried_again", refused)
        .with("server_cpu_us_per_node", cpu);
    let mut outcome = Outcome { findings: vec![finding], tables: vec![table], ..Outcome::default() };
    outcome.tables.push(usage.table_per_beats(nodes as u64));
    outcome.timeline.extend(usage.series);
    Ok((load, outcome))
}
