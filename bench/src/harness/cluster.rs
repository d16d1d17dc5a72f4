//! The cluster that is measured: three replica processes that are started for one benchmark and end with it, or those
//! of a running `muster dev`, which are left as they are.

use std::collections::BTreeMap;
use std::io::{BufReader, Seek};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use muster_client::Client;
use muster_lifecycle::state::State;
use muster_pki::{ClientConfig, FleetFolder, ReplicaPlan, tls};
use muster_raft::snapshot_store::read_snapshot;
use serde_json::Value;

use super::wait;
use crate::measure::scrape::{self, AcceptedBeats, ScrapedMetrics};
use crate::measure::usage::resident_bytes;

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The limit for a replica to start: with a million nodes it has much to read.
const RESTART_TIMEOUT: &str = "10m";
const PORTS: u16 = 40;

/// For nodes without agents: no node is marked Unknown for want of beats.
const NEVER_JUDGE: [&str; 2] = ["--node-monitor-grace-period=24h", "--node-startup-grace-period=24h"];

pub struct BenchCluster {
    dir: PathBuf,
    binary: PathBuf,
    /// Absent if the cluster ran before.
    own: Option<OwnCluster>,
}

/// A cluster that ends with the benchmark.
struct OwnCluster {
    dev: Child,
    /// Removed after the processes that write into it have ended.
    _dir: tempfile::TempDir,
}

// === impl BenchCluster ===

impl BenchCluster {
    /// A cluster for nodes without agents.
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        Self::start_with(binary, &NEVER_JUDGE)
    }

    /// A cluster with these flags of `muster dev`.
    pub(crate) fn start_with(binary: &Path, flags: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let base = free_ports()?;
        let dev = Command::new(binary)
            .args(["dev", "--port-base", &base.to_string(), "--dir"])
            .arg(dir.path())
            .args(["--nodes", "0"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("dev.stderr"))?)
            .spawn()?;
        let (path, binary) = (dir.path().to_owned(), binary.to_owned());
        let mut cluster = Self { dir: path, binary, own: Some(OwnCluster { dev, _dir: dir }) };
        cluster.wait_started()?;
        Ok(cluster)
    }

    /// A cluster that runs already. It is not stopped at the end.
    pub fn attach(binary: &Path, dir: &Path) -> Result<Self> {
        let cluster = Self { dir: dir.to_owned(), binary: binary.to_owned(), own: None };
        let file = cluster.file();
        ensure!(
            file.exists(),
            "no cluster runs in {}: {} is not there; start one with `muster dev --dir {}`, or leave out --dir",
            dir.display(),
            file.display(),
            dir.display()
        );
        Ok(cluster)
    }

    /// Whether it was started for this benchmark, so that replicas may be killed for good.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn wait_started(&mut self) -> Result<()> {
        let start = Instant::now();
        while !self.file().exists() {
            if let Some(status) = self.own.as_mut().map_or(Ok(None), |own| own.dev.try_wait())? {
                let why = std::fs::read_to_string(self.dir.join("dev.stderr")).unwrap_or_default();
                bail!("the cluster did not start ({status}):\n{why}");
            }
            if start.elapsed() > START_TIMEOUT {
                bail!("the cluster did not start within {} s", START_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }

    fn operator(&self) -> Result<ClientConfig> {
        Ok(ClientConfig::load(&self.dir.join("operator/client.toml"))?)
    }

    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(self.operator()?)?)
    }

    /// Clients that ask one replica each.
    pub(crate) fn clients_by_replica(&self) -> Result<BTreeMap<u64, Client>> {
        let (fleet, config) = (self.fleet()?, self.operator()?);
        let client = |plan: &ReplicaPlan| {
            let config = ClientConfig { endpoints: vec![plan.client.clone()], ..config.clone() };
            Ok((plan.id.0, Client::new(config)?))
        };
        fleet.replicas().iter().map(client).collect()
    }

    /// The leader, as the replica that answers first sees it.
    pub async fn leader(&self) -> Result<u64> {
        self.client()?.status().await?.leader.context("the cluster has no leader")
    }

    /// The fleet folder, with the keys to sign for agents.
    pub(crate) fn fleet(&self) -> Result<FleetFolder> {
        Ok(FleetFolder::load(&self.dir)?)
    }

    /// The replicated state, read from a backup: its stamps are in milliseconds, where manifests have whole seconds.
    pub(crate) async fn state(&self, client: &Client) -> Result<State> {
        let mut file = tempfile::tempfile_in(&self.dir)?;
        client.backup(&file).await?;
        file.rewind()?;
        let (_, state) = read_snapshot(BufReader::new(file))?;
        Ok(state)
    }

    /// Replica ids and process ids.
    pub(crate) fn processes(&self) -> Result<Vec<(u64, u32)>> {
        let process = |replica: &Value| Some((replica["id"].as_u64()?, u32::try_from(replica["pid"].as_u64()?).ok()?));
        self.replicas()?.iter().map(|replica| process(replica).context("cluster.json: id and pid")).collect()
    }

    /// Labels and process ids for a [`UsageMeter`](crate::measure::usage::UsageMeter): "replica 1" and so on.
    pub(crate) fn labelled_processes(&self) -> Result<Vec<(String, u32)>> {
        Ok(self.processes()?.into_iter().map(|(id, pid)| (label(id), pid)).collect())
    }

    /// A replica's metrics.
    pub async fn scrape(&self, id: u64) -> Result<ScrapedMetrics> {
        let replicas = self.replicas()?;
        let replica = replicas.iter().find(|replica| replica["id"] == id).context("no such replica")?;
        let address = replica["http"].as_str().context("cluster.json: http")?.parse()?;
        scrape::metrics(self.tls()?, address).await.with_context(|| format!("the metrics of replica {id}"))
    }

    /// Beats so far, by the replica that received them first-hand. A replica that does not answer is an error,
    /// because its beats would be missing.
    pub async fn accepted(&self) -> Result<AcceptedBeats> {
        let mut accepted = AcceptedBeats::default();
        for (id, _) in self.processes()? {
            accepted.by_replica.insert(id, self.scrape(id).await?.beats());
        }
        Ok(accepted)
    }

    fn replicas(&self) -> Result<Vec<Value>> {
        let cluster: Value = serde_json::from_slice(&std::fs::read(self.file())?)?;
        cluster["replicas"].as_array().cloned().context("cluster.json has no replicas")
    }

    fn tls(&self) -> Result<Arc<rustls::ClientConfig>> {
        Ok(tls::operator(&self.operator()?.tls)?)
    }

    pub(crate) fn kill(&self, id: u64) -> Result<()> {
        let (_, pid) = self.processes()?.into_iter().find(|(known, _)| *known == id).context("no such replica")?;
        let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("cannot kill replica {id}") }
    }

    pub(crate) fn restart(&self, id: u64) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(["dev", "restart", &id.to_string(), "--timeout", RESTART_TIMEOUT, "--dir"]).arg(&self.dir);
        let output = command.output()?;
        if output.status.success() { Ok(()) } else { bail!("{}", String::from_utf8_lossy(&output.stderr)) }
    }

    /// Resident memory of every replica in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<BTreeMap<u64, u64>> {
        let resident = |(id, pid): (u64, u32)| Ok((id, resident_bytes(pid)?));
        self.processes()?.into_iter().map(resident).collect()
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.dev.id().to_string()]).status();
        let _ = self.dev.wait();
    }
}

/// Waits until every replica is reachable and has applied all that the others have, and there is a leader.
pub(crate) async fn wait_caught_up(client: &Client, limit: Duration) -> Result<()> {
    let look = || async {
        let status = client.status().await?;
        status.leader.context("there is no leader")?;
        for replica in &status.replicas {
            let (id, applied, wanted) = (replica.id, replica.applied, status.applied);
            ensure!(
                replica.reachable && applied >= wanted,
                "replica {id} has not caught up: it is at {applied} of {wanted}"
            );
        }
        Ok(())
    };
    wait::until(limit, look).await
}

/// A replica's name in tables and plots.
pub(crate) fn label(id: u64) -> String {
    format!("replica {id}")
}

/// The first of a row of free ports.
pub(crate) fn free_ports() -> Result<u16> {
    let bases = (12_000..30_000).step_by(usize::from(PORTS));
    let free = |base: &u16| (*base..*base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    bases.into_iter().find(free).context("no free ports on the loopback address")
}
