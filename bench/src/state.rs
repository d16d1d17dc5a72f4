//! The replicated state alone: memory per node in one process, without log, caches and connections.

use anyhow::{Context, Result, ensure};
use muster_lifecycle::command::{Command, Operation};
use muster_lifecycle::meta::Uid;
use muster_proto::manifest::node_from_json;

use crate::catalog::OTHER;
use crate::cluster::resident_bytes;
use crate::ledger::{self, BATCH, Ledger};
use crate::node;
use crate::outcome::{Finding, Goal, Outcome};
use crate::setting::Setting;
use crate::table::Table;

const GOAL: Goal = Goal::at_most(OTHER, 2_048.0);

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let nodes = setting.nodes(10_000, 100_000);
    let process = std::process::id();
    let mut ledger = Ledger::default();
    // The event log fills up first, so that its bounded cost is not counted as the nodes'.
    let warm = 20_000;
    grow(&mut ledger, 0, warm)?;
    let before = resident_bytes(process)?;
    grow(&mut ledger, warm, nodes)?;
    let after = resident_bytes(process)?;
    ensure!(ledger.state.nodes().len() == warm + nodes, "some nodes were not created");
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    let title = "resident memory of the state alone";
    let mut table = Table::new(title, &["from nodes", "to nodes", "bytes/node"]);
    table.row([warm.to_string(), (warm + nodes).to_string(), format!("{per_node:.0}")]);
    let finding = Finding::new("state", GOAL, "resident", per_node, "bytes/node").with("nodes", nodes);
    Ok(Outcome { findings: vec![finding], tables: vec![table], ..Outcome::default() })
}

/// Commands are made as they are needed, so that they do not count.
fn grow(ledger: &mut Ledger, from: usize, count: usize) -> Result<()> {
    let numbers: Vec<usize> = (from..from + count).collect();
    for chunk in numbers.chunks(BATCH) {
        let commands = chunk.iter().map(|number| create(*number)).collect::<Result<_>>()?;
        ledger.apply(&ledger::batch(commands, 0))?;
    }
    Ok(())
}

fn create(number: usize) -> Result<Command> {
    let manifest = node_from_json(node::manifest(number).to_string().as_bytes()).context("the manifest")?;
    let uid = Uid(number as u128);
    Ok(ledger::by_operator(Operation::CreateNode { draft: Box::new(manifest.draft), uid }))
}
