//! A real three-process cluster for tests: `muster dev` in a directory of its own.
//!
//! Everything is waited for by condition. Processes are ended by the ids in `cluster.json`, or with the
//! `dev` process that owns them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use muster_client::Client;
use muster_pki::ClientConfig;
use serde_json::Value;

pub const MUSTER: &str = env!("CARGO_BIN_EXE_muster");
/// Far longer than anything here takes; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub dir: tempfile::TempDir,
    dev: Child,
    port_base: u16,
    arguments: Vec<String>,
}

impl Cluster {
    /// Without simulated nodes, and with timings that leave nodes without an agent alone for the length of a test.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let quiet = ["--nodes", "0", "--policy", "upstream", "--node-startup-grace-period", "1h"];
        let quiet = [&quiet[..], &["--node-monitor-grace-period", "1h"]].concat();
        Self::start_exactly(&[&quiet, arguments].concat())
    }

    pub fn start_exactly(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port_base = free_ports();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let dev = spawn_dev(dir.path(), port_base, &arguments);
        let mut cluster = Self { dir, dev, port_base, arguments };
        cluster.wait_started();
        cluster
    }

    /// Waits until `dev` has written `cluster.json`; a `dev` that ends before is a failure with its reason.
    fn wait_started(&mut self) {
        let file = self.dir.path().join("cluster.json");
        let dir = self.dir.path().to_owned();
        let dev = &mut self.dev;
        eventually("dev writes cluster.json", || {
            if let Some(status) = dev.try_wait().unwrap() {
                panic!("muster dev ended early with {status}:\n{}", read(&dir.join("dev.stderr")));
            }
            file.exists().then_some(())
        });
    }

    /// Ends `dev` in an orderly way and waits until every process of the cluster is gone.
    pub fn stop(&mut self) {
        let pids = self.pids();
        signal("-TERM", self.dev.id());
        self.dev.wait().unwrap();
        for pid in pids {
            wait_gone(pid);
        }
    }

    /// The same cluster again, after `stop` or after everything was killed.
    pub fn start_again(&mut self) {
        self.dev = spawn_dev(self.dir.path(), self.port_base, &self.arguments);
        self.wait_started();
        // A linearizable read: until then replicas may not know how much of their log is committed.
        self.ok(&["get", "nodes"]);
    }

    /// `dev` and all replicas at once, without a chance to say goodbye.
    pub fn kill_everything(&mut self) {
        let pids = self.pids();
        // The replicas first, so that none sees its parent's end and stops in an orderly way.
        for pid in &pids {
            signal("-KILL", *pid);
        }
        signal("-KILL", self.dev.id());
        self.dev.wait().unwrap();
        for pid in pids {
            wait_gone(pid);
        }
        let _ = std::fs::remove_file(self.dir.path().join("cluster.json"));
    }

    pub fn dev_pid(&self) -> u32 {
        self.dev.id()
    }

    pub fn replicas(&self) -> Vec<Value> {
        let text = read(&self.dir.path().join("cluster.json"));
        let cluster: Value = serde_json::from_str(&text).expect("cluster.json is JSON");
        cluster["replicas"].as_array().expect("replicas").clone()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.replicas().iter().map(pid_of).collect()
    }

    pub fn replica(&self, id: u64) -> Value {
        self.replicas().into_iter().find(|replica| replica["id"] == id).expect("a replica of that id")
    }

    pub fn kill(&self, id: u64) {
        let pid = pid_of(&self.replica(id));
        signal("-KILL", pid);
        wait_gone(pid);
    }

    pub fn restart(&self, id: u64) {
        let before = pid_of(&self.replica(id));
        let output = self.muster(&["dev", "restart", &id.to_string()]);
        assert!(output.status.success(), "dev restart {id}: {}", text(&output.stderr));
        eventually("cluster.json names the new process", || (pid_of(&self.replica(id)) != before).then_some(()));
    }

    /// Brings back replicas that are all dead: none can answer before another one is there too.
    pub fn restart_all(&self) {
        let before = self.pids();
        let restarts: Vec<Child> = (1..=before.len())
            .map(|id| {
                let mut command = Command::new(MUSTER);
                command.args(["dev", "restart"]).arg("--dir").arg(self.dir.path()).arg(id.to_string());
                command.stderr(Stdio::null()).spawn().expect("muster runs")
            })
            .collect();
        for mut restart in restarts {
            assert!(restart.wait().unwrap().success(), "a replica was not restarted");
        }
    }

    /// Runs the binary against this cluster.
    pub fn muster(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(MUSTER);
        if arguments.first() == Some(&"dev") {
            command.args(&arguments[..2]).arg("--dir").arg(self.dir.path()).args(&arguments[2..]);
        } else {
            command.arg("--dir").arg(self.dir.path()).args(arguments);
        }
        command.output().expect("muster runs")
    }

    /// As `muster`, but it must succeed; its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.muster(arguments);
        assert!(
            output.status.success(),
            "muster {arguments:?} failed with {}: {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// As `muster`, but it must fail with `code`; its standard error.
    pub fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.muster(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "muster {arguments:?}: {}{stderr}", text(&output.stdout));
        stderr
    }

    pub fn status(&self) -> Option<Value> {
        let output = self.muster(&["status", "-o", "json", "--timeout", "3s"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    pub fn leader(&self) -> u64 {
        eventually("a leader", || self.status()?["leader"].as_u64())
    }

    /// Waits until all replicas answer, agree on a leader and have applied the same.
    pub fn settle(&self) -> Value {
        eventually("all replicas settle", || {
            let status = self.status()?;
            let replicas = status["replicas"].as_array()?;
            let same = |key: &str| replicas.iter().all(|replica| replica[key] == replicas[0][key]);
            let reachable = replicas.iter().all(|replica| replica["reachable"] == true);
            (status["leader"].is_u64() && reachable && same("applied") && same("digest")).then_some(status)
        })
    }

    /// As `settle`, and the members are exactly these.
    pub fn settle_members(&self, ids: &[u64]) -> Value {
        eventually("the membership is as wanted", || {
            let status = self.status()?;
            let replicas = status["replicas"].as_array()?;
            let members: Vec<u64> = replicas.iter().filter_map(|replica| replica["id"].as_u64()).collect();
            let reachable = replicas.iter().all(|replica| replica["reachable"] == true);
            (members == ids && reachable).then_some(status)
        })
    }

    pub fn client(&self) -> Client {
        let config = ClientConfig::load(&self.dir.path().join("operator/client.toml")).unwrap();
        Client::new(config).unwrap()
    }

    pub fn log_of(&self, id: u64) -> String {
        read(&self.dir.path().join(format!("replica-{id}/log")))
    }

    pub fn data_dir(&self, id: u64) -> PathBuf {
        PathBuf::from(self.replica(id)["data_dir"].as_str().expect("data_dir"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dev.try_wait().is_ok_and(|status| status.is_none()) {
            signal("-TERM", self.dev.id());
            let _ = self.dev.wait();
        }
        if std::thread::panicking() {
            let kept = self.dir.path().to_owned();
            self.dir.disable_cleanup(true);
            eprintln!("the cluster's directory is kept for a look: {}", kept.display());
        }
    }
}

fn spawn_dev(dir: &Path, port_base: u16, arguments: &[String]) -> Child {
    let stderr = std::fs::File::create(dir.join("dev.stderr")).unwrap();
    Command::new(MUSTER)
        .args(["dev", "--dir"])
        .arg(dir)
        .args(["--port-base", &port_base.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .expect("muster dev starts")
}

/// The first of forty ports in a row that nobody listens on, and that no other test here was given.
pub fn free_ports() -> u16 {
    const BLOCKS: u32 = 450;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(37);
    loop {
        let block = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
        // Below the ephemeral range, whose ports come and go.
        let base = 12_000 + u16::try_from(block * 40).unwrap();
        if (base..base + 40).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

/// Polls until `condition` gives something, for as long as [`PATIENCE`].
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, condition)
}

pub fn eventually_within<T>(patience: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says so past the capture of output, which would hide it from whoever looks for skipped tests.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

pub fn pid_of(replica: &Value) -> u32 {
    u32::try_from(replica["pid"].as_u64().expect("pid")).unwrap()
}

pub fn signal(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
}

pub fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; its parent has not looked yet.
    !state.is_empty() && !state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

pub fn wait_gone(pid: u32) {
    eventually("a process ends", || (!is_running(pid)).then_some(()));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
