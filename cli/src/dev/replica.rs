//! One replica process: started, watched, stopped.

use std::fs::{self, File, OpenOptions};
use std::future::pending;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use muster_controller::config::{Layer, ServerConfig};
use muster_lifecycle::replica::ReplicaId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;

use super::replica_dir;

pub(super) struct Replica {
    id: ReplicaId,
    config_file: PathBuf,
    config: ServerConfig,
    log: PathBuf,
    running: Option<Running>,
    last_pid: u32,
    /// Deaths in a row, each soon after the start.
    quick_deaths: u32,
    /// When to start it again by itself.
    pub(super) restart_at: Option<Instant>,
}

struct Running {
    child: Child,
    /// Never written to. It closes when this process ends, however that happens, and the child stops.
    _lifeline: Option<ChildStdin>,
    since: Instant,
}

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_LIMIT: u64 = 16 << 20;
const TAIL_BYTES: u64 = 16 << 10;
const TAIL_LINES: usize = 8;
const SETTLED: Duration = Duration::from_secs(30);
const MAX_QUICK_DEATHS: u32 = 8;

// === impl Replica ===

impl Replica {
    pub(super) fn load(dir: &Path, id: ReplicaId) -> anyhow::Result<Self> {
        let folder = replica_dir(dir, id);
        let config_file = folder.join("config.toml");
        let config = ServerConfig::merge(Some(Layer::load(&config_file)?), Layer::default())
            .with_context(|| format!("{} cannot be used", config_file.display()))?;
        let log = folder.join("log");
        Ok(Self { id, config_file, config, log, running: None, last_pid: 0, quick_deaths: 0, restart_at: None })
    }

    pub(super) fn id(&self) -> ReplicaId {
        self.id
    }

    pub(super) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    pub(super) fn last_pid(&self) -> u32 {
        self.last_pid
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts the process with the flags for the cluster's policy, if it has none yet.
    /// The process has a process group of its own, so that Ctrl-C reaches `dev` only, which then stops all in order.
    pub(super) fn start(&mut self, program: &Path, initial_flags: &[String]) -> anyhow::Result<u32> {
        let log = self.open_log().with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut child = Command::new(program)
            .arg("server")
            .arg("--config")
            .arg(&self.config_file)
            .arg("--exit-with-parent")
            .args(initial_flags)
            // As in the systemd unit: freed memory goes back at once, and memory is not taken in pieces of two
            // megabytes.
            .env("MIMALLOC_PURGE_DELAY", "0")
            .env("MIMALLOC_ALLOW_THP", "0")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().unwrap_or_default();
        // Waiting for a child closes its stdin, so the lifeline has to live elsewhere.
        let lifeline = child.stdin.take();
        self.running = Some(Running { child, _lifeline: lifeline, since: Instant::now() });
        self.restart_at = None;
        self.last_pid = pid;
        Ok(pid)
    }

    /// Waits for the end of the process; for ever if there is none.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let Some(running) = &mut self.running else { return pending().await };
        let status = running.child.wait().await?;
        let settled = running.since.elapsed() >= SETTLED;
        self.quick_deaths = if settled { 0 } else { self.quick_deaths + 1 };
        self.running = None;
        Ok(status)
    }

    /// When to try again after a death; `None` if it has died too often.
    pub(super) fn next_restart(&self) -> Option<Duration> {
        let pause = Duration::from_millis(200) * 2u32.pow(self.quick_deaths.min(6));
        (self.quick_deaths < MAX_QUICK_DEATHS).then_some(pause)
    }

    pub(super) fn forgive(&mut self) {
        self.quick_deaths = 0;
    }

    /// Stops the process in an orderly way if possible, by force otherwise.
    pub(super) async fn stop(&mut self) {
        self.restart_at = None;
        let Some(mut running) = self.running.take() else { return };
        if let Some(pid) = running.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            // A process that is already gone is fine.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(STOP_TIMEOUT, running.child.wait()).await.is_err() {
            crate::output::say(format_args!("replica {} did not stop within {STOP_TIMEOUT:?}; killing it", self.id));
            let _ = running.child.kill().await;
        }
    }

    /// The last lines of its log, indented.
    pub(super) fn log_tail(&self) -> String {
        let text = tail(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        lines[from..].iter().map(|line| format!("    {line}\n")).collect()
    }

    fn open_log(&self) -> io::Result<File> {
        if fs::metadata(&self.log).is_ok_and(|log| log.len() > LOG_LIMIT) {
            fs::rename(&self.log, self.log.with_extension("1"))?;
        }
        OpenOptions::new().create(true).append(true).open(&self.log)
    }
}

/// `exit code 1` or `killed by signal 9`.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
