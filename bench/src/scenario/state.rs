//! `state`: memory per node of the replicated state alone, in one process, without log, caches and connections.

use anyhow::{Context, Result, ensure};
use muster_lifecycle::command::{Command, OperatorOperation};
use muster_lifecycle::meta::Uid;
use muster_proto::manifest::node_from_json;

use crate::harness::local_state::{self, BATCH, LocalState};
use crate::harness::options::BenchOptions;
use crate::load::node;
use crate::measure::usage::resident_bytes;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const GOAL: Goal = Goal::at_most(OTHER, 2_048.0);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let nodes = options.nodes(10_000, 100_000);
    let process = std::process::id();
    let mut local = LocalState::default();
    // The bounded event log fills up first, so that it is not counted as memory of the nodes.
    let warm = 20_000;
    grow(&mut local, 0, warm)?;
    let before = resident_bytes(process)?;
    grow(&mut local, warm, nodes)?;
    let after = resident_bytes(process)?;
    ensure!(local.state.nodes().len() == warm + nodes, "some nodes were not created");
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    let title = "resident memory of the state alone";
    let mut table = ReportTable::new(title, &["from nodes", "to nodes", "bytes/node"]);
    table.row([warm.to_string(), (warm + nodes).to_string(), format!("{per_node:.0}")]);
    let figure = Figure::new("state", GOAL, "resident", per_node, "bytes/node").with("nodes", nodes);
    Ok(ScenarioOutcome { figures: vec![figure], tables: vec![table], ..ScenarioOutcome::default() })
}

/// Makes commands as they are needed, so that their memory does not count.
fn grow(local: &mut LocalState, from: usize, count: usize) -> Result<()> {
    let numbers: Vec<usize> = (from..from + count).collect();
    for chunk in numbers.chunks(BATCH) {
        let commands = chunk.iter().map(|number| create(*number)).collect::<Result<_>>()?;
        local.apply(&local_state::batch(commands, 0))?;
    }
    Ok(())
}

fn create(number: usize) -> Result<Command> {
    let manifest = node_from_json(node::manifest(number).as_bytes()).context("the manifest")?;
    let uid = Uid(number as u128);
    Ok(local_state::by_operator(OperatorOperation::CreateNode { draft: Box::new(manifest.draft), uid }))
}
