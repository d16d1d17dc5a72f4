//! Placement on the state alone: a leader's decisions, applied to the same state. Nothing is replicated.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use muster_lifecycle::command::{Command, OperatorOperation};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo;
use muster_proto::manifest::Manifest;

use crate::harness::local_state::{self, LocalState};
use crate::load::node;
use crate::load::replica_sets::PodShape;
use crate::measure::cpu_clock::timed;
use crate::report::table::ReportTable;

/// As many operations as a leader proposes at once.
const LOOK: usize = 2_048;

/// Cluster time when all pods exist.
const MADE_BY: u64 = 1_000_000;

pub(super) fn run(nodes: usize, pods: usize) -> Result<ReportTable> {
    let title = format!(
        "the state alone, {nodes} nodes and {pods} pods, at most {LOOK} to a look, per second of processor time"
    );
    let mut table = ReportTable::new(title, &["pods", "pods/s looking", "pods/s applying", "pods/s both"]);
    let one = with_sets(nodes, &PodShape::several(1, pods))?;
    let twenty = with_sets(nodes, &PodShape::several(20, pods))?;
    let mixed = with_bare_pods(nodes, &PodShape::several(20, pods))?;
    for (what, local, most) in [
        ("one set", one.clone(), LOOK),
        ("one set, one look", one, pods),
        ("twenty sets", twenty, LOOK),
        ("twenty shapes in turns", mixed, LOOK),
    ] {
        let (looking, applying) = place(local, pods, most)?;
        let rate = |took: Duration| format!("{:.0}", pods as f64 / took.as_secs_f64());
        table.row([what.to_owned(), rate(looking), rate(applying), rate(looking + applying)]);
    }
    Ok(table)
}

/// The time it took to look, and to apply the findings.
fn place(mut local: LocalState, pods: usize, most: usize) -> Result<(Duration, Duration)> {
    ensure!(local.state.waiting_pods().len() == pods, "{} pods wait", local.state.waiting_pods().len());
    let (mut looking, mut applying) = (Duration::ZERO, Duration::ZERO);
    while local.state.waiting_pods().len() > 0 {
        let look = || Ok(todo::placements(&local.state, ClusterTime(MADE_BY), most, |_| false));
        let (found, took) = timed(look)?;
        looking += took;
        ensure!(!found.operations.is_empty(), "no pod found a node");
        let batch = local_state::batch(found.operations.into_iter().map(local_state::by_leader).collect(), MADE_BY);
        let ((), took) = timed(|| local.apply(&batch))?;
        applying += took;
    }
    ensure!(local.state.pods().iter().all(|pod| pod.spec.binding.is_some()), "not all pods found a node");
    Ok((looking, applying))
}

fn with_nodes(nodes: usize) -> Result<LocalState> {
    let mut local = LocalState::default();
    let registrations = (0..nodes).map(node::registration).collect::<Result<Vec<_>>>()?;
    local.apply_all(&local_state::batches(registrations, 0))?;
    Ok(local)
}

/// The pods as a leader makes them for ReplicaSets.
fn with_sets(nodes: usize, shapes: &[PodShape]) -> Result<LocalState> {
    let mut local = with_nodes(nodes)?;
    let sets = shapes.iter().enumerate().map(|(number, shape)| create(&shape.replica_set(), number));
    local.apply_all(&local_state::batches(sets.collect::<Result<_>>()?, 0))?;
    loop {
        let found = todo::staffing(&local.state, LOOK);
        if found.operations.is_empty() {
            return Ok(local);
        }
        local.apply(&local_state::batch(found.operations.into_iter().map(local_state::by_leader).collect(), 0))?;
    }
}

/// Pods without an owner, the shapes in turns, so that every look meets all shapes.
fn with_bare_pods(nodes: usize, shapes: &[PodShape]) -> Result<LocalState> {
    let mut local = with_nodes(nodes)?;
    let most = shapes.iter().map(|shape| shape.replicas).max().unwrap_or(0);
    for round in 0..most {
        let there = shapes.iter().enumerate().filter(|(_, shape)| round < shape.replicas);
        let pods = there.map(|(number, shape)| create(&shape.pod(round), round * shapes.len() + number));
        local.apply(&local_state::batch(pods.collect::<Result<_>>()?, round as u64))?;
    }
    Ok(local)
}

fn create(manifest: &serde_json::Value, number: usize) -> Result<Command> {
    let uid = Uid(number as u128 + 1);
    let operation = match Manifest::from_json(manifest.to_string().as_bytes())? {
        Manifest::Pod(read) => OperatorOperation::CreatePod { draft: Box::new(read.draft), uid },
        Manifest::Workload(read) => OperatorOperation::CreateWorkload { draft: Box::new(read.draft), uid },
        Manifest::Node(_) => bail!("nodes register by themselves"),
    };
    Ok(local_state::by_operator(operation))
}
