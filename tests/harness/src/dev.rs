//! A cluster of real processes: `muster dev` in a folder of its own.
//!
//! Processes are ended by the ids in `cluster.json`, or with the `dev` process that owns them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use muster_client::Client;
use muster_pki::ClientConfig;
use serde_json::Value;

use crate::members::operator_config;
use crate::operator::Operator;
use crate::process::{MUSTER, free_ports, signal, text, wait_gone};
use crate::runs;
use crate::turn::Turn;
use crate::waiting::eventually;

pub struct DevCluster {
    pub dir: tempfile::TempDir,
    dev: Child,
    /// The file that `dev` and, from it, every replica is started from.
    program: PathBuf,
    port_base: u16,
    arguments: Vec<String>,
    turn: Option<Turn>,
}

impl DevCluster {
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
        Self::start_in(tempfile::tempdir().unwrap(), MUSTER.clone(), arguments)
    }

    /// As [`DevCluster::start_exactly`], from a file of its own, which [`DevCluster::install`] replaces.
    pub fn start_installed(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        replace(&program, &MUSTER);
        Self::start_in(dir, program, arguments)
    }

    /// Replaces the file that replicas are started from. Those that run keep the old one until they are restarted.
    pub fn install(&self, program: &Path) {
        assert_ne!(self.program, *MUSTER, "only a cluster with a file of its own");
        replace(&self.program, program);
    }

    fn start_in(dir: tempfile::TempDir, program: PathBuf, arguments: &[&str]) -> Self {
        let turn = Some(Turn::take());
        let port_base = free_ports();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let dev = spawn_dev(&program, dir.path(), port_base, &arguments);
        let mut cluster = Self { dir, dev, program, port_base, arguments, turn };
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
        self.dev = spawn_dev(&self.program, self.dir.path(), self.port_base, &self.arguments);
        self.wait_started();
        // A linearizable read: until then replicas may not know how much of their log is committed.
        self.ok(&["get", "nodes"]);
    }

    /// Kills `dev` and all replicas at once, without an orderly stop.
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

    /// Lets other clusters run beside this one, which has little to do from here on.
    pub fn give_up_turn(&mut self) {
        self.turn = None;
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
                let mut command = Command::new(&*MUSTER);
                command.args(["dev", "restart"]).arg("--dir").arg(self.dir.path()).arg(id.to_string());
                command.stderr(Stdio::null()).spawn().expect("muster runs")
            })
            .collect();
        for mut restart in restarts {
            assert!(restart.wait().unwrap().success(), "a replica was not restarted");
        }
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
        Client::new(self.client_config()).unwrap()
    }

    pub fn client_config(&self) -> ClientConfig {
        operator_config(&self.dir.path().join("operator"))
    }

    pub fn log_of(&self, id: u64) -> String {
        read(&self.dir.path().join(format!("replica-{id}/log")))
    }

    pub fn data_dir(&self, id: u64) -> PathBuf {
        PathBuf::from(self.replica(id)["data_dir"].as_str().expect("data_dir"))
    }
}

impl Operator for DevCluster {
    fn muster(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&*MUSTER);
        if arguments.first() == Some(&"dev") {
            command.args(&arguments[..2]).arg("--dir").arg(self.dir.path()).args(&arguments[2..]);
        } else {
            command.arg("--dir").arg(self.dir.path()).args(arguments);
        }
        command.output().expect("muster runs")
    }
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        if self.dev.try_wait().is_ok_and(|status| status.is_none()) {
            signal("-TERM", self.dev.id());
            let _ = self.dev.wait();
        }
        if std::thread::panicking() {
            let kept = self.dir.path().to_owned();
            self.dir.disable_cleanup(true);
            eprintln!("the cluster's directory is kept for a look: {}", kept.display());
        } else {
            runs::require_sound_in([self.dir.path().join("runs.jsonl").as_path()]);
        }
    }
}

/// As an upgrade replaces a program: the new file takes the name at once. A link, where it can be, is quicker than a
/// copy.
fn replace(program: &Path, by: &Path) {
    let new = program.with_extension("new");
    // A rename onto another link of the same file leaves both names.
    let _ = std::fs::remove_file(&new);
    if std::fs::hard_link(by, &new).is_err() {
        std::fs::copy(by, &new).unwrap();
    }
    std::fs::rename(&new, program).unwrap();
}

fn spawn_dev(program: &Path, dir: &Path, port_base: u16, arguments: &[String]) -> Child {
    let stderr = std::fs::File::create(dir.join("dev.stderr")).unwrap();
    Command::new(program)
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

pub fn pid_of(replica: &Value) -> u32 {
    u32::try_from(replica["pid"].as_u64().expect("pid")).unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
