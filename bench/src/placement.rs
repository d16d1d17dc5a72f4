//! How fast pods find their nodes: in a cluster whose nodes run them, and on the state alone.

mod core;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use muster_client::Client;
use muster_lifecycle::pod::Pod;
use muster_lifecycle::state::State;
use muster_lifecycle::time::Stamp;

use crate::carried::{self, Zone};
use crate::catalog::OTHER;
use crate::cluster::Cluster;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress::say;
use crate::setting::Setting;
use crate::table::Table;
use crate::workload::{self, Shape};

const ZONES: usize = 3;
/// ReplicaSets that share the pods; those of one differ from those of another in requests and tolerations.
const SETS: [(usize, &str); 2] = [(1, "bound, one set"), (20, "bound, twenty sets")];
const GOAL: Goal = Goal::at_least(OTHER, 5_000.0);
const PATIENCE: Duration = Duration::from_secs(300);
/// Upstream's timings: beats every ten seconds.
const FLAGS: [&str; 1] = ["--policy=upstream"];

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (nodes, pods) = (setting.nodes(500, 5_000), setting.pods.unwrap_or(setting.scale.pick(1_000, 10_000)));
    say("the state alone");
    let alone = core::run(nodes, pods)?;
    let title = format!(
        "three replicas, {nodes} nodes on {ZONES} carriers that run {pods} pods, from the apply on, in seconds"
    );
    let mut table = Table::new(title, &["sets", "all made", "all bound", "all ready", "pods/s", "pods/s once made"]);
    let mut findings = Vec::new();
    for (sets, what) in SETS {
        say(format_args!("three replicas, sets: {sets}"));
        // Each with a cluster of its own, which has to have these timings.
        let cluster = Cluster::start_with(&setting.binary, &FLAGS)?;
        let course = measure(&cluster, nodes, Shape::several(sets, pods)).await?;
        table.row(course.cells(sets));
        let finding = Finding::new("placement", GOAL, what, course.rate(), "pods/s");
        findings.push(finding.with("nodes", nodes).with("pods", pods));
    }
    Ok(Outcome { findings, tables: vec![alone, table], ..Outcome::default() })
}

async fn measure(cluster: &Cluster, nodes: usize, shapes: Vec<Shape>) -> Result<Course> {
    let client = cluster.client()?;
    let zones = fleet(cluster, &client, nodes).await?;
    // A leader that is new to its office places nothing until it has listened for a while.
    workload::warm_up(&client, PATIENCE).await?;
    let pods: usize = shapes.iter().map(|shape| shape.replicas).sum();
    let start = wall_ms();
    workload::apply(&client, &shapes).await?;
    workload::wait_ready(&client, &shapes, pods, PATIENCE).await?;
    let ready = seconds(start, wall_ms());
    let state = cluster.state(&client).await?;
    drop(zones);
    let course = Course::read(&state, start, ready)?;
    ensure!(course.pods == pods, "{} pods were made, not {pods}", course.pods);
    Ok(course)
}

async fn fleet(cluster: &Cluster, client: &Client, nodes: usize) -> Result<Vec<Zone>> {
    let mut zones = Vec::new();
    for zone in 0..ZONES {
        let share = nodes / ZONES + usize::from(zone < nodes % ZONES);
        zones.push(Zone::start(cluster, client, zone, share).await?);
    }
    carried::wait_ready(client, nodes).await?;
    Ok(zones)
}

/// When the last pod was made and bound, in seconds from the apply. Read off the stamps of the state afterwards: they
/// are in milliseconds and say when the leader put the pod into an entry, so nothing is watched meanwhile.
struct Course {
    made: f64,
    bound: f64,
    ready: f64,
    pods: usize,
    /// Of those, bound when all had been made.
    late: usize,
}

// === impl Course ===

impl Course {
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

/// The replicas are on this machine, so their stamps are of the same clock.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn seconds(from: i64, to: i64) -> f64 {
    (to - from) as f64 / 1_000.0
}
