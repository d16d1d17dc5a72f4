//! `evictions`: how late pods leave a zone that fell silent, while their replacements are made, placed in the other
//! zones and started there.
//!
//! A pod is due when its toleration runs out, counted from its node's taint, and manifests have that in whole seconds
//! only. So both moments are read from a backup afterwards, in milliseconds of cluster time: that of the deadline,
//! and that of the entry which evicted the pod. The time that the entry still took to be committed and seen is
//! measured on one pod in a hundred: these are watched meanwhile, by the wall clock that the stamps are of too.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_client::{Client, Query};
use muster_lifecycle::pod::Pod;
use muster_lifecycle::state::State;
use muster_lifecycle::taint_eviction;
use muster_proto::v1::WatchEvent;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::harness::cluster::BenchCluster;
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::load::replica_sets::{self, PodShape};
use crate::load::simulated_zone::{self, SimulatedZone};
use crate::measure::latency::Latencies;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::scenario::placement::wall_ms;

/// The zone that falls silent.
const DYING: usize = 0;
const PODS_PER_NODE: usize = 100;
/// As many pods as a simulated node takes.
const PODS_PER_NODE_MAX: usize = 110;
const PODS_PER_SET: usize = 1_000;
const WATCHED_SHARE: usize = 100;
const WATCHED: (&str, &str) = ("watched", "yes");
const TIMEOUT: Duration = Duration::from_secs(300);

/// Long enough that on two busy cores no living node is marked Unknown.
const FLAGS: [&str; 4] = [
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=20s",
    "--node-startup-grace-period=60s",
    "--pod-eviction-timeout=10s",
];

/// The goal for the 99th percentile, in milliseconds.
const GOAL: Goal = Goal::at_most(OTHER, 1_000.0);
const RATE: u32 = 1_000;

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let (nodes, pods) = (options.nodes(60, 1_000), options.pods.unwrap_or(options.scale.pick(1_000, 30_000)));
    let rate = options.rate.unwrap_or(RATE);
    let dying = pods.div_ceil(PODS_PER_NODE);
    let others = nodes.saturating_sub(dying);
    ensure!(others * PODS_PER_NODE_MAX >= pods, "{others} nodes of the other zones cannot take over {pods} pods");
    let rates = [format!("--node-eviction-rate={rate}"), format!("--secondary-node-eviction-rate={rate}")];
    let flags: Vec<&str> = FLAGS.into_iter().chain(rates.iter().map(String::as_str)).collect();
    let cluster = BenchCluster::start_with(&options.binary, &flags)?;
    let client = cluster.client()?;
    progress::print(format_args!(
        "{pods} pods on {dying} nodes of one zone, {others} nodes in two others, {rate} nodes tainted per second"
    ));
    let times = measure(&cluster, &client, (dying, others), pods).await?;
    let figure = Figure::new("evictions", GOAL, "lateness p99", times.lateness.percentile_ms(99), "ms");
    let figure = figure.with("nodes", nodes).with("pods", pods).with("rate", rate);
    Ok(ScenarioOutcome { figures: vec![figure], tables: vec![times.table()], ..ScenarioOutcome::default() })
}

async fn measure(
    cluster: &BenchCluster,
    client: &Client,
    (dying, others): (usize, usize),
    pods: usize,
) -> Result<EvictionTimes> {
    let shapes = shapes(pods);
    // All pods start in the zone that falls silent, because there are no other nodes yet.
    let doomed = SimulatedZone::start(cluster, client, DYING, dying).await?;
    simulated_zone::wait_ready(client, dying).await?;
    replica_sets::apply(client, &shapes).await?;
    replica_sets::wait_ready(client, &shapes, pods, TIMEOUT).await?;
    let refuge = [
        SimulatedZone::start(cluster, client, DYING + 1, others / 2).await?,
        SimulatedZone::start(cluster, client, DYING + 2, others - others / 2).await?,
    ];
    simulated_zone::wait_ready(client, dying + others).await?;
    let watcher = tokio::spawn(note_evictions(client.sibling(), pods / WATCHED_SHARE));
    drop(doomed);
    // Pods of silent nodes are not ready, so first all of them go and then all of them are back.
    replica_sets::wait_ready(client, &shapes, 0, TIMEOUT).await?;
    replica_sets::wait_ready(client, &shapes, pods, TIMEOUT).await?;
    let state = cluster.state(client).await?;
    let lost = state.nodes().iter().filter(|node| !node.is_ready()).count();
    ensure!(lost == dying, "{lost} nodes were marked Unknown, not {dying}");
    drop(refuge);
    EvictionTimes::read(&state, pods, &seen(watcher).await?)
}

/// ReplicaSets of which the last one is watched.
fn shapes(pods: usize) -> Vec<PodShape> {
    let watched = pods / WATCHED_SHARE;
    let mut shapes = PodShape::several(pods.div_ceil(PODS_PER_SET).max(1), pods - watched);
    shapes.push(PodShape::new(shapes.len(), watched).labelled(WATCHED.0, WATCHED.1));
    shapes
}

/// When each pod was first seen to be deleted, by name.
type SeenAt = BTreeMap<String, i64>;

/// Watches evictions. A watcher that cannot keep up lists again, and sees some of them late.
async fn note_evictions(client: Client, count: usize) -> Result<SeenAt> {
    let mut seen = SeenAt::new();
    loop {
        let selector = format!("{}={}", WATCHED.0, WATCHED.1);
        let mut watch = client.watch(Query { label_selector: selector, ..Query::of("pods") }, None).await?;
        while let Ok(event) = watch.next().await {
            let at = wall_ms();
            if let Some(name) = evicted(&event)? {
                seen.entry(name).or_insert(at);
            }
            if seen.len() == count {
                return Ok(seen);
            }
        }
    }
}

fn evicted(event: &WatchEvent) -> Result<Option<String>> {
    let pod: Value = serde_json::from_slice(&event.object)?;
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
    Ok((!pod["metadata"]["deletionTimestamp"].is_null()).then(|| name.to_owned()))
}

/// All replacements run by now, so an eviction that was not seen yet never will be.
async fn seen(watcher: JoinHandle<Result<SeenAt>>) -> Result<SeenAt> {
    tokio::time::timeout(Duration::from_secs(10), watcher).await.context("the watcher missed some evictions")??
}

/// The measurements, in cluster time.
struct EvictionTimes {
    lateness: Latencies,
    watched: Latencies,
    /// The time from the first to the last node tainted, and from the first to the last pod evicted.
    tainting: Duration,
    evicting: Duration,
}

/// One pod that was evicted.
struct Departure {
    due: u64,
    gone: u64,
    tainted: u64,
    /// How long after its deadline the watcher saw it.
    seen_late: Option<Duration>,
}

// === impl EvictionTimes ===

impl EvictionTimes {
    fn read(state: &State, pods: usize, seen: &SeenAt) -> Result<Self> {
        let gone = state.pods().iter().filter(|pod| pod.is_terminating());
        let gone: Vec<Departure> = gone.map(|pod| Departure::read(state, pod, seen)).collect::<Result<_>>()?;
        ensure!(gone.len() == pods, "{} pods were evicted, not {pods}", gone.len());
        let from_first = |pick: fn(&Departure) -> u64| {
            let (first, last) = (gone.iter().map(pick).min(), gone.iter().map(pick).max());
            Duration::from_millis(last.unwrap_or(0) - first.unwrap_or(0))
        };
        Ok(Self {
            lateness: gone.iter().map(|pod| Duration::from_millis(pod.gone.saturating_sub(pod.due))).collect(),
            watched: gone.iter().filter_map(|pod| pod.seen_late).collect(),
            tainting: from_first(|pod| pod.tainted),
            evicting: from_first(|pod| pod.gone),
        })
    }

    fn table(&self) -> ReportTable {
        let (tainting, evicting) = (self.tainting.as_secs_f64(), self.evicting.as_secs_f64());
        let rate = self.lateness.len() as f64 / evicting;
        let title = format!("tainted within {tainting:.2} s, evicted within {evicting:.2} s ({rate:.0} pods/s)");
        let mut table = ReportTable::new(title, &["lateness", "pods", "p50 ms", "p99 ms", "max ms"]);
        for (what, late) in [("of the entry, all pods", &self.lateness), ("of the watcher, one in 100", &self.watched)]
        {
            let [p50, p99, max] = [50, 99, 100].map(|percent| format!("{:.0}", late.percentile_ms(percent)));
            table.row([what.to_owned(), late.len().to_string(), p50, p99, max]);
        }
        table
    }
}

// === impl Departure ===

impl Departure {
    fn read(state: &State, pod: &Pod, seen: &SeenAt) -> Result<Self> {
        let node = state.node_of(pod).context("an evicted pod has no node")?;
        let before = Pod { ending: None, ..pod.clone() };
        let (taint, due) =
            taint_eviction::cause(&before, &node.spec.taints).context("the pod has no taint to leave for")?;
        let (added, deleted) = taint.added.zip(pod.meta.deleted).context("a taint or a deletion without a time")?;
        let due_wall = added.wall.0 + i64::try_from(due.0 - added.cluster.0)?;
        let late = |at: &i64| Duration::from_millis(u64::try_from(at - due_wall).unwrap_or(0));
        let seen_late = seen.get(&*pod.meta.name).map(late);
        Ok(Self { due: due.0, gone: deleted.cluster.0, tainted: added.cluster.0, seen_late })
    }
}
