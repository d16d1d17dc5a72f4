//! The replicated state alone: memory per node in one process, without log, caches and connections.

use anyhow::{Context, Result, ensure};
use muster_lifecycle::command::{Batch, Command, Operation, Origin, Outcome, Position};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::state::State;
use muster_lifecycle::time::Stamp;
use muster_proto::manifest::node_from_json;

use crate::cluster::resident_bytes;
use crate::node;

const BATCH: usize = 256;

pub fn run(nodes: usize) -> Result<()> {
    let process = std::process::id();
    let mut state = State::new();
    // The event log fills up first, so that its bounded cost is not counted as the nodes'.
    let warm = 20_000;
    grow(&mut state, 0, warm)?;
    let before = resident_bytes(process)?;
    grow(&mut state, warm, nodes)?;
    let after = resident_bytes(process)?;
    ensure!(state.nodes().len() == warm + nodes, "some nodes were not created");
    let per_node = after.saturating_sub(before) as f64 / nodes as f64;
    println!("state alone: {per_node:.0} bytes of resident memory per node, from {warm} to {} nodes", warm + nodes);
    Ok(())
}

fn grow(state: &mut State, from: usize, count: usize) -> Result<()> {
    let numbers: Vec<usize> = (from..from + count).collect();
    for (index, chunk) in numbers.chunks(BATCH).enumerate() {
        let commands = chunk.iter().map(|number| create(*number)).collect::<Result<_>>()?;
        let batch = Batch { stamp: Stamp::default(), commands };
        let applied = state.apply(Position { term: 1, index: index as u64 }, &batch);
        let refused = applied.outcomes.iter().find(|outcome| matches!(outcome, Outcome::Rejected(_)));
        ensure!(refused.is_none(), "refused: {refused:?}");
    }
    Ok(())
}

fn create(number: usize) -> Result<Command> {
    let manifest = node_from_json(node::manifest(number).to_string().as_bytes()).context("the manifest")?;
    let uid = Uid(number as u128);
    let operation = Operation::CreateNode { draft: Box::new(manifest.draft), uid };
    Ok(Command { origin: Origin::Operator { user: "bench".into() }, request: None, operation })
}
