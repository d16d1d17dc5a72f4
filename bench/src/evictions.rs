//! How late pods leave a zone that fell silent, with everything that follows going on beside it: replacements are
//! made, placed on the other zones and started there.
//!
//! A pod is due when its node's taint was added plus what the pod tolerates, and manifests have that in whole seconds
//! only. So both moments are read off a backup afterwards, in milliseconds of cluster time: that of the deadline, and
//! that of the entry which evicted the pod. What the entry still took to be committed and seen is measured on one pod in
//! a hundred: these are watched meanwhile, by the wall clock that the stamps are of too.

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

use crate::carried::{self, Zone};
use crate::catalog::OTHER;
use crate::cluster::Cluster;
use crate::latency::Latencies;
use crate::outcome::{Finding, Goal, Outcome};
use crate::placement::wall_ms;
use crate::progress::say;
use crate::setting::Setting;
use crate::table::Table;
use crate::workload::{self, Shape};

/// The zone that falls silent.
const DYING: usize = 0;
const PODS_PER_NODE: usize = 100;
/// How many a simulated node takes.
const PODS_PER_NODE_MAX: usize = 110;
const PODS_PER_SET: usize = 1_000;
const WATCHED_SHARE: usize = 100;
const WATCHED: (&str, &str) = ("watched", "yes");
const PATIENCE: Duration = Duration::from_secs(300);

/// Long enough that two busy cores do not lose the living.
const FLAGS: [&str; 4] = [
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=20s",
    "--node-startup-grace-period=60s",
    "--pod-eviction-timeout=10s",
];

/// How late the last but one in a hundred may be.
const GOAL: Goal = Goal::at_most(OTHER, 1_000.0);
const RATE: u32 = 1_000;

pub async fn run(setting: &Setting) -> Result<Outcome> {
    let (nodes, pods) = (setting.nodes(60, 1_000), setting.pods.unwrap_or(setting.scale.pick(1_000, 30_000)));
    let rate = setting.rate.unwrap_or(RATE);
    let dying = pods.div_ceil(PODS_PER_NODE);
    let others = nodes.saturating_sub(dying);
    ensure!(others * PODS_PER_NODE_MAX >= pods, "{others} nodes of the other zones cannot take over {pods} pods");
    let rates = [format!("--node-eviction-rate={rate}"), format!("--secondary-node-eviction-rate={rate}")];
    let flags: Vec<&str> = FLAGS.into_iter().chain(rates.iter().map(String::as_str)).collect();
    let cluster = Cluster::start_with(&setting.binary, &flags)?;
    let client = cluster.client()?;
    say(format_args!(
        "{pods} pods on {dying} nodes of one zone, {others} nodes in two others, {rate} nodes tainted per second"
    ));
    let course = measure(&cluster, &client, (dying, others), pods).await?;
    let finding = Finding::new("evictions", GOAL, "lateness p99", course.lateness.percentile_ms(99), "ms");
    let finding = finding.with("nodes", nodes).with("pods", pods).with("rate", rate);
    Ok(Outcome { findings: vec![finding], tables: vec![course.table()], ..Outcome::default() })
}

async fn measure(cluster: &Cluster, client: &Client, (dying, others): (usize, usize), pods: usize) -> Result<Course> {
    let shapes = shapes(pods);
    // The pods are all where they are to be evicted before there is anywhere else to go.
    let doomed = Zone::start(cluster, client, DYING, dying).await?;
    carried::wait_ready(client, dying).await?;
    workload::apply(client, &shapes).await?;
    workload::wait_ready(client, &shapes, pods, PATIENCE).await?;
    let refuge = [
        Zone::start(cluster, client, DYING + 1, others / 2).await?,
        Zone::start(cluster, client, DYING + 2, others - others / 2).await?,
    ];
    carried::wait_ready(client, dying + others).await?;
    let watcher = tokio::spawn(note_evictions(client.sibling(), pods / WATCHED_SHARE));
    drop(doomed);
    // Pods of silent nodes are not ready, so first all of them go and then all of them are back.
    workload::wait_ready(client, &shapes, 0, PATIENCE).await?;
    workload::wait_ready(client, &shapes, pods, PATIENCE).await?;
    let state = cluster.state(client).await?;
    let lost = state.nodes().iter().filter(|node| !node.is_ready()).count();
    ensure!(lost == dying, "{lost} nodes were held for lost, not {dying}");
    drop(refuge);
    Course::read(&state, pods, &seen(watcher).await?)
}

/// One set is watched.
fn shapes(pods: usize) -> Vec<Shape> {
    let watched = pods / WATCHED_SHARE;
    let mut shapes = Shape::several(pods.div_ceil(PODS_PER_SET).max(1), pods - watched);
    shapes.push(Shape::new(shapes.len(), watched).labelled(WATCHED.0, WATCHED.1));
    shapes
}

type Seen = BTreeMap<String, i64>;

/// When each pod was first seen to be deleted. A watcher that cannot keep up lists again, and sees some of it late.
async fn note_evictions(client: Client, count: usize) -> Result<Seen> {
    let mut seen = Seen::new();
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

/// All replacements run by now, so whatever is not seen yet never will be.
async fn seen(watcher: JoinHandle<Result<Seen>>) -> Result<Seen> {
    tokio::time::timeout(Duration::from_secs(10), watcher).await.context("some evictions were never seen")??
}

/// What came of it, in cluster time.
struct Course {
    lateness: Latencies,
    watched: Latencies,
    /// From the first to the last node tainted, and from the first to the last pod evicted.
    tainting: Duration,
    evicting: Duration,
}

/// One pod that was driven away.
struct Departure {
    due: u64,
    gone: u64,
    tainted: u64,
    /// Seen by the watcher so long after it was due.
    seen_late: Option<Duration>,
}

// === impl Course ===

impl Course {
    fn read(state: &State, pods: usize, seen: &Seen) -> Result<Self> {
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

    fn table(&self) -> Table {
        let (tainting, evicting) = (self.tainting.as_secs_f64(), self.evicting.as_secs_f64());
        let rate = self.lateness.len() as f64 / evicting;
        let title = format!("tainted within {tainting:.2} s, evicted within {evicting:.2} s ({rate:.0} pods/s)");
        let mut table = Table::new(title, &["lateness", "pods", "p50 ms", "p99 ms", "max ms"]);
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
    fn read(state: &State, pod: &Pod, seen: &Seen) -> Result<Self> {
        let node = state.node_of(pod).context("an evicted pod has no node")?;
        let before = Pod { ending: None, ..pod.clone() };
        let (taint, due) = taint_eviction::cause(&before, &node.spec.taints).context("nothing drove the pod away")?;
        let (added, deleted) = taint.added.zip(pod.meta.deleted).context("a taint or a deletion without a time")?;
        let due_wall = added.wall.0 + i64::try_from(due.0 - added.cluster.0)?;
        let late = |at: &i64| Duration::from_millis(u64::try_from(at - due_wall).unwrap_or(0));
        let seen_late = seen.get(&*pod.meta.name).map(late);
        Ok(Self { due: due.0, gone: deleted.cluster.0, tainted: added.cluster.0, seen_late })
    }
}
