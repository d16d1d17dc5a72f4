//! One real machine that joins a local cluster by token. It reports what the machine's own tools say, a disk that
//! fills up shows, and a pod is started, evicted gracefully and gone. Whichever replica dies, the agent's beats
//! arrive.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_lifecycle::quantity::Quantity;
use muster_testing::dev::{DevCluster, pid_of};
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, is_running, shims_in, signal, skip, text, wait_gone};
use muster_testing::waiting::{eventually, eventually_within};
use serde_json::{Value, json};

const NODE: &str = "this-machine";
/// The goal for an agent to be heard through another replica. A soak is held to it; a busy test machine only fails
/// for what no operator would accept.
const GOAL: Duration = Duration::from_secs(3);
const UNACCEPTABLE: Duration = Duration::from_secs(20);
/// How often to kill the replica that the agent is attached to; a soak sets it to 50.
const KILLS: (&str, u32) = ("MUSTER_KILLS", 3);

/// An agent of this machine, with a directory of its own.
struct Agent {
    process: Child,
    state_dir: PathBuf,
    log: PathBuf,
}

// === impl Agent ===

impl Agent {
    fn join(cluster: &DevCluster, dir: &Path, flags: &[&str]) -> Self {
        let said = cluster.ok(&["token", "create", "--node", NODE]);
        let token = said.lines().last().unwrap();
        let doors: Vec<String> = cluster.replicas().iter().map(door).collect();
        let (state_dir, log) = (dir.join("state"), cluster.dir.path().join("agent.log"));
        let mut command = Command::new(&*MUSTER);
        command.args(["agent", "--join", token, "--server", &doors.join(","), "--hostname-override", NODE]);
        command.args(["--metrics-address", "none", "--node-status-update-frequency", "1s", "--state-dir"]);
        command.arg(&state_dir).args(flags).stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        Self { process, state_dir, log }
    }

    fn view(&self) -> Option<Value> {
        let mut command = Command::new(&*MUSTER);
        command.args(["agent", "status", "-o", "json", "--state-dir"]).arg(&self.state_dir);
        serde_json::from_slice(&command.output().unwrap().stdout).ok()
    }

    fn attached_to(&self) -> Option<u64> {
        self.view().filter(|view| view["session"]["state"] == "attached")?["session"]["replica"].as_u64()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Pods outlive their agent, but not this test: a shim that is asked to end ends its pod.
        shims_in(&self.state_dir).into_iter().for_each(|shim| signal("-TERM", shim));
    }
}

fn door(replica: &Value) -> String {
    replica["agent"].as_str().unwrap().to_owned()
}

fn cluster() -> DevCluster {
    DevCluster::start_exactly(&["--nodes", "0"])
}

fn node(cluster: &DevCluster) -> Option<Value> {
    let output = cluster.muster(&["get", "node", NODE, "-o", "json"]);
    serde_json::from_slice(&output.stdout).ok()
}

fn has(node: &Value, condition: &str, status: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|found| found["type"] == condition && found["status"] == status)
}

fn wait_for(cluster: &DevCluster, condition: &str, status: &str) -> Value {
    let what = format!("{condition} is {status}");
    eventually(&what, || node(cluster).filter(|node| has(node, condition, status)))
}

/// The output of a tool of the machine, in one line.
fn said_by(program: &str, arguments: &[&str]) -> String {
    text(&Command::new(program).args(arguments).output().unwrap().stdout).trim().to_owned()
}

/// A small disk of the test's own, where that is allowed.
struct SmallDisk(tempfile::TempDir);

// === impl SmallDisk ===

impl SmallDisk {
    fn mount() -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(dir.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(dir)),
            Ok(output) => Err(format!("cannot mount a tmpfs: {}", text(&output.stderr).trim())),
            Err(error) => Err(format!("cannot run mount: {error}")),
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn a_joined_machine_reports_its_facts_and_runs_its_pods() {
    let disk = match SmallDisk::mount() {
        Ok(disk) => disk,
        Err(why) => return skip(&why),
    };
    let cluster = cluster();
    let thresholds = ["--eviction-hard", "nodefs.available<40%", "--eviction-pressure-transition-period", "1s"];
    let agent = Agent::join(&cluster, disk.path(), &thresholds);
    let node = wait_for(&cluster, "Ready", "True");
    assert_facts(&node, disk.path());

    wait_for(&cluster, "DiskPressure", "False");
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; 48 << 20]).unwrap();
    wait_for(&cluster, "DiskPressure", "True");
    fs::remove_file(&ballast).unwrap();
    wait_for(&cluster, "DiskPressure", "False");
    wait_for(&cluster, "Ready", "True");

    a_pod_is_started_evicted_gracefully_and_gone(&cluster, disk.path());
    drop(agent);
}

fn assert_facts(node: &Value, disk: &Path) {
    let info = &node["status"]["nodeInfo"];
    assert_eq!(info["kernelVersion"], said_by("uname", &["-r"]));
    let release = fs::read_to_string("/etc/os-release").unwrap();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap().trim_matches('"');
    assert_eq!(info["osImage"], pretty);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total = total.trim().trim_end_matches(" kB");
    let capacity = &node["status"]["capacity"];
    assert_eq!(amount(&capacity["memory"]), amount(&format!("{total}Ki").into()));
    assert_eq!(amount(&capacity["cpu"]), amount(&said_by("getconf", &["_NPROCESSORS_ONLN"]).into()));
    let size = said_by("df", &["--output=size", "-k", disk.to_str().unwrap()]);
    let size = format!("{}Ki", size.lines().last().unwrap().trim());
    assert_eq!(amount(&capacity["ephemeral-storage"]), amount(&size.into()));
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
}

/// A quantity, in whatever notation.
fn amount(quantity: &Value) -> Quantity {
    quantity.as_str().unwrap().parse().unwrap()
}

/// The pod prints a line when it is asked to end, which shows that it was asked.
fn a_pod_is_started_evicted_gracefully_and_gone(cluster: &DevCluster, disk: &Path) {
    let (alive, asked) = (disk.join("alive"), disk.join("asked"));
    let script = format!(
        "trap 'touch {}; exit 0' TERM; echo $$$$ > {}; while :; do sleep 0.1; done",
        asked.display(),
        alive.display()
    );
    let container = json!({"name": "doze", "image": "none", "command": ["/bin/sh", "-c", script]});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 60});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "doze"}, "spec": spec});
    let file = cluster.dir.path().join("pod.json");
    fs::write(&file, pod.to_string()).unwrap();
    cluster.ok(&["apply", "-f", file.to_str().unwrap()]);
    let pid: u32 = eventually("the pod's process", || fs::read_to_string(&alive).ok()?.trim().parse().ok());
    eventually("the pod is known to run", || cluster.ok(&["get", "pods"]).contains("Running").then_some(()));
    cluster.ok(&["taint", "node", NODE, "maintenance=now:NoExecute"]);
    eventually("the pod is gone", || {
        let output = cluster.muster(&["get", "pod", "doze"]);
        (!output.status.success()).then_some(())
    });
    assert!(asked.exists(), "it was asked to end before");
    assert!(!is_running(pid), "it was reported as stopped before it was");
}

#[test]
fn when_its_replica_is_killed_an_agent_beats_at_another() {
    let cluster = cluster();
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::join(&cluster, dir.path(), &["--runtime", "none"]);
    wait_for(&cluster, "Ready", "True");
    let soak: Option<u32> = std::env::var(KILLS.0).ok().and_then(|text| text.parse().ok());
    let (kills, limit) = soak.map_or((KILLS.1, UNACCEPTABLE), |kills| (kills, GOAL));
    let mut slowest = Duration::ZERO;
    for round in 1..=kills {
        let replica = eventually("the agent is attached", || agent.attached_to());
        let pid = pid_of(&cluster.replica(replica));
        let killed = Instant::now();
        signal("-KILL", pid);
        let other = eventually_within(limit, "another replica has welcomed it", || {
            agent.attached_to().filter(|other| *other != replica)
        });
        let moved = killed.elapsed();
        let heard = format!("by replica {other}");
        eventually("the cluster has heard it there", || {
            let explained = cluster.ok(&["explain", "node", NODE]);
            explained.lines().any(|line| line.starts_with("heard") && line.contains(&heard)).then_some(())
        });
        slowest = slowest.max(moved);
        println!("round {round}: replica {replica} killed, welcomed by replica {other} after {moved:.2?}");
        wait_gone(pid);
        cluster.restart(replica);
        cluster.settle();
        assert!(node(&cluster).is_some_and(|node| has(&node, "Ready", "True")), "round {round}");
    }
    println!("{kills} kills, the slowest welcome came after {slowest:.2?} (goal {GOAL:?})");
    let events = cluster.ok(&["get", "events"]);
    assert!(!events.contains("NodeNotReady"), "the node was marked NotReady:\n{events}");
}
