//! `placement`: pods per second that find a node, in a cluster whose nodes run them, and on the state alone.

mod core;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use muster_client::Client;
use muster_lifecycle::pod::Pod;
use muster_lifecycle::state::State;
use muster_lifecycle::time::Stamp;

use crate::harness::cluster::BenchCluster;
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::load::replica_sets::{self, PodShape};
use crate::load::simulated_zone::{self, SimulatedZone};
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const ZONES: usize = 3;
/// ReplicaSets that share the pods; those of one differ from those of another in requests and tolerations.
const SETS: [(usize, &str); 2] = [(1, "bound, one set"), (20, "bound, twenty sets")];
const GOAL: Goal = Goal::at_least(OTHER, 5_000.0);
const TIMEOUT: Duration = Duration::from_secs(300);
/// Upstream's timings: beats every ten seconds.
const FLAGS: [&str; 1] = ["--policy=upstream"];

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (nodes, pods) = (options.nodes(500, 5_000), options.pods.unwrap_or(options.scale.pick(1_000, 10_000)));
    progress::print("the state alone");
    let alone = core::run(nodes, pods)?;
    let title = format!(
        "three replicas, {nodes} nodes on {ZONES} aggregators that run {pods} pods, from the apply on, in seconds"
    );
    let mut table =
        ReportTable::new(title, &["sets", "all made", "all bound", "all ready", "pods/s", "pods/s once made"]);
    let mut figures = Vec::new();
    for (sets, what) in SETS {
        progress::print(format_args!("three replicas, sets: {sets}"));
        // A cluster of its own for each, because it needs these timings.
        let cluster = BenchCluster::start_with(&options.binary, &FLAGS)?;
        let times = measure(&cluster, nodes, PodShape::several(sets, pods)).await?;
        table.row(times.cells(sets));
        let figure = Figure::new("placement", GOAL, what, times.rate(), "pods/s");
        figures.push(figure.with("nodes", nodes).with("pods", pods));
    }
    Ok(ScenarioOutcome { figures, tables: vec![alone, table], ..ScenarioOutcome::default() })
}

async fn measure(cluster: &BenchCluster, nodes: usize, shapes: Vec<PodShape>) -> Result<PlacementTimes> {
    let client = cluster.client()?;
    let zones = fleet(cluster, &client, nodes).await?;
    // A new leader places no pods until it has listened for a while.
    replica_sets::warm_up(&client, TIMEOUT).await?;
    let pods: usize = shapes.iter().map(|shape| shape.replicas).sum();
    let start = wall_ms();
    replica_sets::apply(&client, &shapes).await?;
    replica_sets::wait_ready(&client, &shapes, pods, TIMEOUT).await?;
    let ready = seconds(start, wall_ms());
    let state = cluster.state(&client).await?;
    drop(zones);
    let times = PlacementTimes::read(&state, start, ready)?;
    ensure!(times.pods == pods, "{} pods were made, not {pods}", times.pods);
    Ok(times)
}

async fn fleet(cluster: &BenchCluster, client: &Client, nodes: usize) -> Result<Vec<SimulatedZone>> {
    let mut zones = Vec::new();
    for zone in 0..ZONES {
        let share = nodes / ZONES + usize::from(zone < nodes % ZONES);
        zones.push(SimulatedZone::start(cluster, client, zone, share).await?);
    }
    simulated_zone::wait_ready(client, nodes).await?;
    Ok(zones)
}

/// When the last pod was made and bound, in seconds from the apply. Read from the stamps of the state afterwards:
/// they are in milliseconds and say when the leader put the pod into an entry, so no watch disturbs the measurement.
struct PlacementTimes {
    made: f64,
    bound: f64,
    ready: f64,
    pods: usize,
    /// Pods that were bound after all had been made.
    late: usize,
}

// === impl PlacementTimes ===

impl PlacementTimes {
    fn read(state: &State, start: i64, ready: f64) -> Result<Self> {
        let at = |stamp: Stamp| seconds(start, stamp.wall.0);
        let pods = || state.pods().iter().filter(|pod| pod.meta.created.wall.0 >= start);
        let bindings = pods().map(|pod| bound(pod).map(at).context("a pod that runs is not bound"));
        let bindings: Vec<f64> = bindings.collect::<Result<_>>()?;
        let made = pods().map(|pod| at(pod.meta.created)).fold(0.0, f64::max);
        let bound = bindings.iter().copied().fold(0.0, f64::max);
        let late = bindings.iter().filter(|at| **at > made).count();
        Ok(Self { made, bound, ready, pods: bindings.len(), late })
    }

    fn rate(&self) -> f64 {
        self.pods as f64 / self.bound
    }

    fn cells(&self, sets: usize) -> [String; 6] {
        let Self { made, bound, ready, late, .. } = self;
        let once_made = *late as f64 / (bound - made);
        let [made, bound, ready] = [made, bound, ready].map(|seconds| format!("{seconds:.2}"));
        let [rate, once_made] = [self.rate(), once_made].map(|rate| format!("{rate:.0}"));
        [sets.to_string(), made, bound, ready, rate, once_made]
    }
}

fn bound(pod: &Pod) -> Option<Stamp> {
    pod.spec.binding.as_ref().map(|binding| binding.at)
}

/// Milliseconds of the wall clock. The replicas are on this machine, so their stamps are of the same clock.
pub(super) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn seconds(from: i64, to: i64) -> f64 {
    (to - from) as f64 / 1_000.0
}
