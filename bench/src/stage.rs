//! What most scenarios need first: a cluster, a client, the doors, and nodes that are registered and beat.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use muster_client::Client;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::load::doors::Doors;
use crate::load::fleet::{Load, Silenced};
use crate::patience;
use crate::progress;
use crate::scrape::Accepted;
use crate::setting::{Scale, Setting};

/// How long a silence is forgiven.
pub const GRACE: Grace = Grace { small: "8s", full: "40s" };
/// What was read has been counted a moment later.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// With any fleet.
const PATIENCE: Duration = Duration::from_secs(300);
/// With a replica that was not there a moment ago.
const RETURN_PATIENCE: Duration = Duration::from_secs(30);

/// The grace of small and of full scenarios.
pub struct Grace {
    small: &'static str,
    full: &'static str,
}

pub struct Stage {
    pub cluster: Cluster,
    pub client: Client,
    pub doors: Doors,
    /// By which all streams of the load are known as one machine's.
    pub instance: u64,
    /// Resident bytes by replica before there was a node.
    pub idle: BTreeMap<u64, u64>,
    set_at: Instant,
}

/// How a fleet came to be.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    pub nodes: usize,
    pub seconds: f64,
}

// === impl Stage ===

impl Stage {
    pub async fn set(setting: &Setting, flags: &[&str]) -> Result<Self> {
        progress::say("starting three replicas");
        let cluster = setting.cluster_with(flags)?;
        let client = cluster.client()?;
        let doors = Doors::open(&cluster, &client).await?;
        let idle = cluster.resident_bytes()?.into_iter().collect();
        Ok(Self { cluster, client, doors, instance: rand::random(), idle, set_at: Instant::now() })
    }

    /// Until the replicas have known each other for so long.
    pub async fn aged(&self, age: Duration) {
        sleep(age.saturating_sub(self.set_at.elapsed())).await;
    }

    /// `nodes` that beat, registered if they were not.
    pub async fn fleet(&self, nodes: usize) -> Result<(Load, Registered)> {
        let mut load = Load::default();
        let registered = self.grow(&mut load, nodes).await?;
        Ok((load, registered))
    }

    /// The load goes on, with as many more nodes as make up for what is missing to `nodes`.
    pub async fn grow(&self, load: &mut Load, nodes: usize) -> Result<Registered> {
        let (start, more) = (Instant::now(), nodes.saturating_sub(load.nodes));
        load.grow(&self.doors, nodes, self.instance);
        load.wait_bound(nodes).await?;
        let seconds = start.elapsed().as_secs_f64();
        progress::say(format_args!("{more} nodes registered and bound in {seconds:.1} s"));
        Ok(Registered { nodes: more, seconds })
    }

    /// The same, and then let go: they exist, but nobody speaks for them.
    pub async fn registered(&self, nodes: usize) -> Result<Registered> {
        let (load, registered) = self.fleet(nodes).await?;
        load.release().await?;
        Ok(registered)
    }

    pub fn processes(&self) -> Result<Vec<(String, u32)>> {
        self.cluster.labelled_processes()
    }

    /// Until the leader has an actor for every node and everybody is ready. One that falls silent before it has said how it is has
    /// its start-up grace, and is not missed for minutes.
    pub async fn on_duty(&self, nodes: usize) -> Result<()> {
        self.manned(nodes).await?;
        self.ready(nodes).await
    }

    async fn manned(&self, nodes: usize) -> Result<()> {
        let look = move || async move {
            let leader = self.cluster.leader().await?;
            let manned = self.cluster.scrape(leader).await?.get(r#"muster_actors{kind="node"}"#).unwrap_or(0.0);
            ensure!(manned as usize >= nodes, "{manned} of {nodes} nodes have an actor");
            Ok(())
        };
        patience::until(patience::with(PATIENCE, nodes), look).await
    }

    /// How many beats were accepted since `before`, once as many as were said have been counted or should have been.
    pub async fn settled(&self, before: &Accepted, said: u64) -> Result<u64> {
        let start = Instant::now();
        loop {
            let accepted = self.cluster.accepted().await?.since(before).total();
            if accepted >= said || start.elapsed() > SETTLED_AFTER {
                return Ok(accepted);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// The silenced nodes beat again, and are waited for.
    pub async fn revive(&self, load: &Load, silenced: &Silenced) -> Result<()> {
        let numbers: Vec<usize> = silenced.keys().copied().collect();
        load.speak(&numbers).await?;
        self.ready(load.nodes).await
    }

    /// Until so many nodes are ready.
    pub async fn ready(&self, nodes: usize) -> Result<()> {
        let look = move || async move {
            let ready = self.client.status().await?.nodes_ready;
            ensure!(ready == nodes as u64, "{ready} of {nodes} nodes are ready");
            Ok(())
        };
        patience::until(patience::with(PATIENCE, nodes), look).await
    }

    /// Until all replicas are up.
    pub async fn complete(&self) -> Result<()> {
        let look = move || async move {
            let status = self.client.status().await?;
            let away = status.replicas.iter().filter(|replica| !replica.reachable).count();
            ensure!(away == 0, "{away} of {} replicas are away", status.replicas.len());
            Ok(())
        };
        patience::until(RETURN_PATIENCE, look).await
    }
}

// === impl Grace ===

impl Grace {
    pub fn of(&self, scale: Scale) -> Duration {
        let seconds = scale.pick(self.small, self.full).trim_end_matches('s').parse();
        Duration::from_secs(seconds.unwrap_or(0))
    }

    /// The rest is as Kubernetes has it, and not as it is hurried along for trying things out.
    pub fn flags(&self, scale: Scale) -> [&'static str; 5] {
        let grace = scale.pick(self.small, self.full);
        ["--policy=upstream", "--node-monitor-grace-period", grace, "--node-startup-grace-period", "10m"]
    }
}
