//! Cost of an entry of 256 commands on the replicated state alone, in a small fleet and in a large one, with Nodes as
//! real agents register them.
//!
//! Every round starts from a copy that shares its memory with the fleet, as a replica's readers do: the cost of
//! leaving them their version is counted.

use divan::Bencher;
use divan::counter::ItemsCount;
use mimalloc::MiMalloc;
use muster_bench::local_state::{self, BATCH, LocalState};
use muster_bench::node;
use muster_lifecycle::command::{AgentOperation, Command, LeaderOperation, Sighting};
use muster_lifecycle::node::MEMORY_PRESSURE;
use muster_lifecycle::node::{ConditionStatus, Node};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::ClusterTime;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const FLEETS: [usize; 2] = [1_000, 100_000];
/// When the measured entry is applied, in milliseconds.
const AT: u64 = 60_000;

fn main() {
    divan::main();
}

#[divan::bench(args = FLEETS)]
fn registrations(bencher: Bencher<'_, '_>, nodes: usize) {
    measure(bencher, &fleet(nodes), register(nodes, nodes + BATCH));
}

#[divan::bench(args = FLEETS)]
fn silent_verdicts(bencher: Bencher<'_, '_>, nodes: usize) {
    let local = fleet(nodes);
    let verdicts = some_of(&local).map(mark_silent).collect();
    measure(bencher, &local, verdicts);
}

#[divan::bench(args = FLEETS)]
fn status_reports(bencher: Bencher<'_, '_>, nodes: usize) {
    let local = fleet(nodes);
    let reports = some_of(&local).map(report_pressure).collect();
    measure(bencher, &local, reports);
}

fn measure(bencher: Bencher<'_, '_>, local: &LocalState, commands: Vec<Command>) {
    assert_eq!(commands.len(), BATCH);
    let batch = local_state::batch(commands, AT);
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| local.clone())
        .bench_local_refs(|local| local.apply(&batch).expect("all of it is legal"));
}

fn fleet(nodes: usize) -> LocalState {
    let mut local = LocalState::default();
    for first in (0..nodes).step_by(BATCH) {
        let batch = local_state::batch(register(first, nodes.min(first + BATCH)), 0);
        local.apply(&batch).expect("all of it is legal");
    }
    local
}

fn register(from: usize, to: usize) -> Vec<Command> {
    (from..to).map(|number| node::registration(number).expect("the manifest is valid")).collect()
}

/// A batch of nodes, from all over the fleet.
fn some_of(local: &LocalState) -> impl Iterator<Item = &Node> {
    let nodes = local.state.nodes();
    let step = nodes.len() / BATCH;
    nodes.iter().map(AsRef::as_ref).step_by(step).take(BATCH)
}

fn mark_silent(node: &Node) -> Command {
    local_state::by_leader(LeaderOperation::MarkSilent {
        name: node.meta.name.clone(),
        incarnation: node.incarnation,
        from: node.status.ready().map(|ready| ready.status),
        heard: Some(Sighting { at: ClusterTime(0), through: ReplicaId(1) }),
        decided: ClusterTime(AT),
    })
}

/// The node's memory runs out, which taints it.
fn report_pressure(node: &Node) -> Command {
    let mut status = node.status.clone();
    for condition in status.conditions.iter_mut().filter(|condition| &*condition.kind == MEMORY_PRESSURE) {
        condition.status = ConditionStatus::True;
    }
    local_state::by_agent(AgentOperation::ReportStatus {
        name: node.meta.name.clone(),
        incarnation: node.incarnation,
        status: Box::new(status),
        running: None,
    })
}
