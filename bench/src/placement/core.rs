//! Placing on the state alone: a leader's looks, and what they find applied to the same state. Nothing is replicated.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use muster_lifecycle::command::{Command, Operation};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo;
use muster_proto::manifest::Manifest;

use crate::ledger::{self, Ledger};
use crate::node;
use crate::processor::timed;
use crate::table::Table;
use crate::workload::Shape;

/// As many as a leader proposes at once.
const LOOK: usize = 2_048;

/// When the pods were all made.
const MADE_BY: u64 = 1_000_000;

pub(super) fn run(nodes: usize, pods: usize) -> Result<Table> {
    let title = format!(
        "the state alone, {nodes} nodes and {pods} pods, at most {LOOK} to a look, per second of processor time"
    );
    let mut table = Table::new(title, &["pods", "pods/s looking", "pods/s applying", "pods/s both"]);
    let one = with_sets(nodes, &Shape::several(1, pods))?;
    let twenty = with_sets(nodes, &Shape::several(20, pods))?;
    let mixed = with_bare_pods(nodes, &Shape::several(20, pods))?;
    for (what, ledger, most) in [
        ("one set", one.clone(), LOOK),
        ("one set, one look", one, pods),
        ("twenty sets", twenty, LOOK),
        ("twenty shapes in turns", mixed, LOOK),
    ] {
        let (looking, applying) = place(ledger, pods, most)?;
        let rate = |took: Duration| format!("{:.0}", pods as f64 / took.as_secs_f64());
        table.row([what.to_owned(), rate(looking), rate(applying), rate(looking + applying)]);
    }
    Ok(table)
}

/// How long it took to look, and to apply what was found.
fn place(mut ledger: Ledger, pods: usize, most: usize) -> Result<(Duration, Duration)> {
    ensure!(ledger.state.waiting_pods().len() == pods, "{} pods wait", ledger.state.waiting_pods().len());
    let (mut looking, mut applying) = (Duration::ZERO, Duration::ZERO);
    while ledger.state.waiting_pods().len() > 0 {
        let look = || Ok(todo::placements(&ledger.state, ClusterTime(MADE_BY), most, |_| false));
        let (found, took) = timed(look)?;
        looking += took;
        ensure!(!found.operations.is_empty(), "a look found no place for anybody");
        let batch = ledger::batch(found.operations.into_iter().map(ledger::by_leader).collect(), MADE_BY);
        let ((), took) = timed(|| ledger.apply(&batch))?;
        applying += took;
    }
    ensure!(ledger.state.pods().iter().all(|pod| pod.spec.binding.is_some()), "not all pods found a node");
    Ok((looking, applying))
}

fn with_nodes(nodes: usize) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let registrations = (0..nodes).map(node::registration).collect::<Result<Vec<_>>>()?;
    ledger.apply_all(&ledger::batches(registrations, 0))?;
    Ok(ledger)
}

/// The pods as a leader makes them for ReplicaSets.
fn with_sets(nodes: usize, shapes: &[Shape]) -> Result<Ledger> {
    let mut ledger = with_nodes(nodes)?;
    let sets = shapes.iter().enumerate().map(|(number, shape)| create(&shape.replica_set(), number));
    ledger.apply_all(&ledger::batches(sets.collect::<Result<_>>()?, 0))?;
    loop {
        let found = todo::staffing(&ledger.state, LOOK);
        if found.operations.is_empty() {
            return Ok(ledger);
        }
        ledger.apply(&ledger::batch(found.operations.into_iter().map(ledger::by_leader).collect(), 0))?;
    }
}

/// One of each shape after the other, so that every look meets all of them.
fn with_bare_pods(nodes: usize, shapes: &[Shape]) -> Result<Ledger> {
    let mut ledger = with_nodes(nodes)?;
    let most = shapes.iter().map(|shape| shape.replicas).max().unwrap_or(0);
    for round in 0..most {
        let there = shapes.iter().enumerate().filter(|(_, shape)| round < shape.replicas);
        let pods = there.map(|(number, shape)| create(&shape.pod(round), round * shapes.len() + number));
        ledger.apply(&ledger::batch(pods.collect::<Result<_>>()?, round as u64))?;
    }
    Ok(ledger)
}

fn create(manifest: &serde_json::Value, number: usize) -> Result<Command> {
    let uid = Uid(number as u128 + 1);
    let operation = match Manifest::from_json(manifest.to_string().as_bytes())? {
        Manifest::Pod(read) => Operation::CreatePod { draft: Box::new(read.draft), uid },
        Manifest::Workload(read) => Operation::CreateWorkload { draft: Box::new(read.draft), uid },
        Manifest::Node(_) => bail!("nodes come by themselves"),
    };
    Ok(ledger::by_operator(operation))
}
