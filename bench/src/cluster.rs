//! Three replica processes started for one benchmark, ended with it.

use std::io::{BufReader, Seek};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_controller::client::Client;
use muster_controller::config::ClientConfig;
use muster_controller::fleet::Fleet;
use muster_lifecycle::state::State;
use muster_raft::snapshot_store::read_snapshot;
use serde_json::Value;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const PORTS: u16 = 40;

/// For nodes without agents: nobody is to miss their beats meanwhile.
const DEAF: [&str; 2] = ["--node-monitor-grace-period=24h", "--node-startup-grace-period=24h"];

pub struct Cluster {
    dir: tempfile::TempDir,
    dev: Child,
    binary: PathBuf,
}

// === impl Cluster ===

impl Cluster {
    /// A cluster for nodes without agents.
    pub fn start(binary: &Path) -> Result<Self> {
        Self::start_with(binary, &DEAF)
    }

    /// A cluster with these flags of `muster dev`.
    pub fn start_with(binary: &Path, flags: &[&str]) -> Result<Self> {
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
        let mut cluster = Self { dir, dev, binary: binary.to_owned() };
        cluster.wait_started()?;
        Ok(cluster)
    }

    fn wait_started(&mut self) -> Result<()> {
        let start = Instant::now();
        while !self.file().exists() {
            if let Some(status) = self.dev.try_wait()? {
                let why = std::fs::read_to_string(self.dir.path().join("dev.stderr")).unwrap_or_default();
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
        self.dir.path().join("cluster.json")
    }

    pub fn client(&self) -> Result<Client> {
        let config = ClientConfig::load(&self.dir.path().join("operator/client.toml"))?;
        Ok(Client::new(config)?)
    }

    /// With the keys to sign for agents.
    pub fn fleet(&self) -> Result<Fleet> {
        Ok(Fleet::load(self.dir.path())?)
    }

    /// The replicated state, out of a backup: its stamps are in milliseconds, where manifests have whole seconds.
    pub async fn state(&self, client: &Client) -> Result<State> {
        let mut file = tempfile::tempfile_in(self.dir.path())?;
        client.backup(&file).await?;
        file.rewind()?;
        let (_, state) = read_snapshot(BufReader::new(file))?;
        Ok(state)
    }

    /// Replica ids and process ids.
    pub fn processes(&self) -> Result<Vec<(u64, u32)>> {
        let cluster: Value = serde_json::from_slice(&std::fs::read(self.file())?)?;
        let replicas = cluster["replicas"].as_array().context("cluster.json has no replicas")?;
        let process = |replica: &Value| Some((replica["id"].as_u64()?, u32::try_from(replica["pid"].as_u64()?).ok()?));
        replicas.iter().map(|replica| process(replica).context("cluster.json: id and pid")).collect()
    }

    pub fn kill(&self, id: u64) -> Result<()> {
        let (_, pid) = self.processes()?.into_iter().find(|(known, _)| *known == id).context("no such replica")?;
        let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("cannot kill replica {id}") }
    }

    pub fn restart(&self, id: u64) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(["dev", "restart", &id.to_string(), "--dir"]).arg(self.dir.path());
        let output = command.output()?;
        if output.status.success() { Ok(()) } else { bail!("{}", String::from_utf8_lossy(&output.stderr)) }
    }

    /// Resident memory of every replica in bytes.
    pub fn resident_bytes(&self) -> Result<Vec<(u64, u64)>> {
        let resident = |(id, pid): (u64, u32)| Ok((id, resident_bytes(pid)?));
        self.processes()?.into_iter().map(resident).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.dev.id().to_string()]).status();
        let _ = self.dev.wait();
    }
}

/// Resident memory of a process.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no VmRSS value")?.parse()?;
    Ok(kib * 1024)
}

fn free_ports() -> Result<u16> {
    let bases = (12_000..30_000).step_by(usize::from(PORTS));
    let free = |base: &u16| (*base..*base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    bases.into_iter().find(free).context("no free ports on the loopback address")
}
