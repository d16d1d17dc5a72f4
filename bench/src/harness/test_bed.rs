//! Test bed of most scenarios: a cluster, a client, the agents' doors, and nodes that are registered and beat.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use muster_client::Client;
use tokio::time::sleep;

use crate::harness::cluster::BenchCluster;
use crate::harness::options::{BenchOptions, BenchScale};
use crate::harness::wait;
use crate::harness::{disk, progress};
use crate::load::doors::AgentDoors;
use crate::load::fleet::{FleetLoad, Silenced};
use crate::measure::scrape::AcceptedBeats;

/// The node monitor grace period of the scenarios that judge nodes.
pub(crate) const GRACE: GracePeriod = GracePeriod { small: "8s", full: "40s" };
/// A beat that was read is counted within this time.
const COUNTED_AFTER: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The limit for any fleet; a large one gets longer.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The limit for a replica that was killed and restarted.
const RETURN_TIMEOUT: Duration = Duration::from_secs(30);

/// The grace period at each scale.
pub(crate) struct GracePeriod {
    small: &'static str,
    full: &'static str,
}

pub(crate) struct TestBed {
    pub(crate) cluster: BenchCluster,
    pub(crate) client: Client,
    pub(crate) doors: AgentDoors,
    /// Identifies all streams of the load as one process.
    pub(crate) instance: u64,
    /// Resident bytes by replica, before there were nodes.
    pub(crate) idle: BTreeMap<u64, u64>,
    started: Instant,
}

/// How fast nodes were registered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) nodes: usize,
    pub(crate) seconds: f64,
}

// === impl TestBed ===

impl TestBed {
    /// Starts the cluster, with these flags of `muster dev`, for a fleet of `nodes` nodes.
    pub(crate) async fn start(options: &BenchOptions, nodes: usize, flags: &[&str]) -> Result<Self> {
        disk::announce(nodes, &options.disk_dir());
        progress::print("starting three replicas");
        let cluster = options.cluster_with(flags)?;
        let client = cluster.client()?;
        let doors = AgentDoors::open(&cluster, &client).await?;
        let idle = cluster.resident_bytes()?.into_iter().collect();
        Ok(Self { cluster, client, doors, instance: rand::random(), idle, started: Instant::now() })
    }

    /// Waits until the cluster is so old.
    pub(crate) async fn wait_age(&self, age: Duration) {
        sleep(age.saturating_sub(self.started.elapsed())).await;
    }

    /// Starts a fleet of `nodes` nodes that beat, and registers those that are missing.
    pub(crate) async fn start_fleet(&self, nodes: usize) -> Result<FleetLoad> {
        let mut load = FleetLoad::default();
        self.grow(&mut load, nodes).await?;
        Ok(load)
    }

    /// Adds as many nodes to the load as are missing to `nodes`.
    pub(crate) async fn grow(&self, load: &mut FleetLoad, nodes: usize) -> Result<Registration> {
        let (start, more) = (Instant::now(), nodes.saturating_sub(load.nodes));
        load.grow(&self.doors, nodes, self.instance);
        load.wait_bound(nodes).await?;
        let seconds = start.elapsed().as_secs_f64();
        progress::print(format_args!("{more} nodes registered and bound in {seconds:.1} s"));
        Ok(Registration { nodes: more, seconds })
    }

    /// Registers nodes and releases them: they exist, and no stream carries them.
    pub(crate) async fn register(&self, nodes: usize) -> Result<()> {
        self.start_fleet(nodes).await?.release().await
    }

    pub(crate) fn processes(&self) -> Result<Vec<(String, u32)>> {
        self.cluster.labelled_processes()
    }

    /// Waits until the leader has an actor for every node and every node is ready. A node that falls silent before its
    /// first status still has its start-up grace period, and is not marked Unknown for minutes.
    pub(crate) async fn wait_watched(&self, nodes: usize) -> Result<()> {
        self.wait_actors(nodes).await?;
        self.wait_ready(nodes).await
    }

    async fn wait_actors(&self, nodes: usize) -> Result<()> {
        let look = move || async move {
            let leader = self.cluster.leader().await?;
            let actors = self.cluster.scrape(leader).await?.get(r#"muster_actors{kind="node"}"#).unwrap_or(0.0);
            ensure!(actors as usize >= nodes, "{actors} of {nodes} nodes have an actor");
            Ok(())
        };
        wait::until(wait::limit(TIMEOUT, nodes), look).await
    }

    /// How many beats were accepted since `before`, once as many as were sent have been counted or should have been.
    pub(crate) async fn accepted_since(&self, before: &AcceptedBeats, sent: u64) -> Result<u64> {
        let start = Instant::now();
        loop {
            let accepted = self.cluster.accepted().await?.since(before).total();
            if accepted >= sent || start.elapsed() > COUNTED_AFTER {
                return Ok(accepted);
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Lets the silenced nodes beat again, and waits until they are ready.
    pub(crate) async fn revive(&self, load: &FleetLoad, silenced: &Silenced) -> Result<()> {
        let numbers: Vec<usize> = silenced.keys().copied().collect();
        load.speak(&numbers).await?;
        self.wait_ready(load.nodes).await
    }

    /// Waits until so many nodes are ready.
    pub(crate) async fn wait_ready(&self, nodes: usize) -> Result<()> {
        let look = move || async move {
            let ready = self.client.status().await?.nodes_ready;
            ensure!(ready == nodes as u64, "{ready} of {nodes} nodes are ready");
            Ok(())
        };
        wait::until(wait::limit(TIMEOUT, nodes), look).await
    }

    /// Waits until all replicas are up.
    pub(crate) async fn wait_replicas_up(&self) -> Result<()> {
        let look = move || async move {
            let status = self.client.status().await?;
            let away = status.replicas.iter().filter(|replica| !replica.reachable).count();
            ensure!(away == 0, "{away} of {} replicas are not reachable", status.replicas.len());
            Ok(())
        };
        wait::until(RETURN_TIMEOUT, look).await
    }
}

// === impl GracePeriod ===

impl GracePeriod {
    pub(crate) fn of(&self, scale: BenchScale) -> Duration {
        let seconds = scale.pick(self.small, self.full).trim_end_matches('s').parse();
        Duration::from_secs(seconds.unwrap_or(0))
    }

    /// All other policies are Kubernetes' own, not the quick ones of `muster dev`.
    pub(crate) fn flags(&self, scale: BenchScale) -> [&'static str; 5] {
        let grace = scale.pick(self.small, self.full);
        ["--policy=upstream", "--node-monitor-grace-period", grace, "--node-startup-grace-period", "10m"]
    }
}
