//! Three replicas and three agents on machines of their own, installed as docs/operations.md says: upgraded one by
//! one under load, and one machine cut off for longer than its pods are tolerated.
//!
//! The machines are network namespaces that the test makes; the real programs run there with the shipped files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use muster_testing::network::{MachineNetwork, SUBNET};
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, is_running, signal, skip, text, wait_gone};
use muster_testing::runs;
use muster_testing::waiting::eventually;
use serde_json::{Value, json};

const REPLICAS: [(&str, u8); 3] = [("r1", 1), ("r2", 2), ("r3", 3)];
const MACHINES: [(&str, u8); 3] = [("m1", 11), ("m2", 12), ("m3", 13)];
/// The machine whose cable is pulled.
const CUT: &str = "m3";
/// The argument by which the pods' processes are known.
const DOZE: &str = "86399.25";

const POLICY: &str = "
[policy]
node-monitor-period = \"1s\"
node-monitor-grace-period = \"8s\"
node-startup-grace-period = \"20s\"
pod-eviction-timeout = \"3s\"
node-eviction-rate = 10.0
secondary-node-eviction-rate = 10.0
";

struct Site {
    dir: tempfile::TempDir,
    network: MachineNetwork,
    running: BTreeMap<String, Child>,
}

// === impl Site ===

impl Site {
    /// "Three machines" of docs/operations.md.
    fn install() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let network = MachineNetwork::lay(&[REPLICAS, MACHINES].concat());
        let mut site = Self { dir, network, running: BTreeMap::new() };
        let mut init = std::process::Command::new(&*MUSTER);
        init.arg("--dir").arg(site.path("fleet")).arg("init");
        for (id, (_, number)) in (1..).zip(REPLICAS) {
            init.arg("--replica").arg(format!("{id}={SUBNET}.{number}"));
        }
        assert!(init.output().unwrap().status.success());
        for (id, (host, _)) in (1..).zip(REPLICAS) {
            let config = site.path(&format!("fleet/replica-{id}/config.toml"));
            fs::write(&config, fs::read_to_string(&config).unwrap() + POLICY).unwrap();
            site.start_replica(host);
        }
        site.settle();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, host: &str, arguments: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{host}.log"))).unwrap();
        let mut command = self.network.at(host, &MUSTER);
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.running.insert(host.to_owned(), child);
    }

    fn start_replica(&mut self, host: &str) {
        let config = self.path(&format!("fleet/replica-{}/config.toml", &host[1..]));
        self.start(host, &["server", "--config", config.to_str().unwrap()]);
    }

    /// As an upgrade does it: stop in an orderly way, start the new program.
    fn restart_replica(&mut self, host: &str) {
        let mut child = self.running.remove(host).unwrap();
        signal("-TERM", child.id());
        assert!(child.wait().unwrap().success(), "{host} stops when asked to");
        self.start_replica(host);
        self.settle();
    }

    /// "A machine joins" of docs/operations.md, with the shipped file.
    fn join(&mut self, host: &str) {
        let shipped = include_str!("../../deploy/agent.toml");
        let doors = REPLICAS.map(|(_, number)| format!("\"{SUBNET}.{number}:7401\"")).join(", ");
        let servers = shipped.lines().find(|line| line.starts_with("server = ")).expect("the shipped file has servers");
        let config = shipped.replace(servers, &format!("server = [{doors}]"));
        let config = config.replace("# hostname-override = \"rack-1\"", &format!("hostname-override = \"{host}\""));
        // The test must not depend on how full the disk under it is.
        let config = config.replace("# eviction-hard = ", "eviction-hard = \"memory.available<1Mi\" # ");
        assert!(config.contains(host) && config.contains("\neviction-hard"), "{config}");
        let (file, state) = (self.path(&format!("{host}.toml")), self.state_dir(host));
        fs::write(&file, config).unwrap();
        let token = self.ok(&["token", "create", "--node", host]);
        let token = token.lines().last().unwrap();
        let words = ["agent", "--config", file.to_str().unwrap(), "--state-dir", state.to_str().unwrap()];
        self.start(host, &[&words[..], &["--join", token]].concat());
    }

    fn state_dir(&self, host: &str) -> PathBuf {
        self.path(&format!("{host}-state"))
    }

    fn apply(&self, manifest: &Value) {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let file = self.path(&format!("{name}.json"));
        fs::write(&file, manifest.to_string()).unwrap();
        self.ok(&["apply", "-f", file.to_str().unwrap()]);
    }

    fn is_ready(&self, node: &str) -> bool {
        let nodes = self.items(&["get", "nodes"]);
        let node = nodes.iter().find(|found| found["metadata"]["name"] == node);
        node.is_some_and(|node| condition(node, "Ready") == "True")
    }

    /// Which of these processes run at the moment when the node is reported ready. It is watched, since polling
    /// learns of it only later.
    fn running_when_ready(&mut self, node: &'static str, pids: Vec<u32>) -> JoinHandle<Vec<u32>> {
        let mut command = self.network.at("switch", &MUSTER);
        command.arg("--dir").arg(self.path("fleet/operator")).args(["get", "nodes", "--watch"]);
        let mut watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        self.running.insert("watch".to_owned(), watch);
        std::thread::spawn(move || {
            let mut lines = lines.map_while(Result::ok);
            let is_ready = |line: &String| line.split_whitespace().take(2).eq([node, "Ready"]);
            lines.find(is_ready).expect("it is ready before the watch ends");
            pids.into_iter().filter(|pid| is_running(*pid)).collect()
        })
    }

    fn pods(&self) -> Vec<Pod> {
        self.items(&["get", "pods"]).iter().map(Pod::read).collect()
    }

    /// The pods that an agent reports as running, by name and uid.
    fn told(&self, host: &str) -> Vec<(String, String)> {
        let mut command = self.network.at(host, &MUSTER);
        command.args(["agent", "status", "-o", "json", "--state-dir"]).arg(self.state_dir(host));
        let view: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap_or_default();
        let pods = view["pods"].as_array().cloned().unwrap_or_default();
        let field = |pod: &Value, name: &str| pod[name].as_str().unwrap_or_default().to_owned();
        let running = pods.iter().filter(|pod| pod["phase"] == "Running");
        running.map(|pod| (field(pod, "name"), field(pod, "uid"))).collect()
    }

    fn not_ready_events(&self) -> Vec<String> {
        let events = self.items(&["get", "events"]);
        let of_nodes = events.iter().filter(|event| event["involvedObject"]["kind"] == "Node");
        let lost = of_nodes.filter(|event| event["reason"] == "NodeNotReady");
        lost.map(|event| event["involvedObject"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Operator for Site {
    fn muster(&self, arguments: &[&str]) -> Output {
        operator(&self.network, self.path("fleet/operator").to_str().unwrap(), arguments)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let kept = self.dir.path().to_owned();
            self.dir.disable_cleanup(true);
            eprintln!("the site's directory is kept for a look: {}", kept.display());
        }
    }
}

fn operator(network: &MachineNetwork, dir: &str, arguments: &[&str]) -> Output {
    network.at("switch", &MUSTER).args(["--dir", dir]).args(arguments).output().unwrap()
}

fn condition(object: &Value, of: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == of);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    name: String,
    uid: String,
    node: String,
    ready: bool,
    terminating: bool,
}

// === impl Pod ===

impl Pod {
    fn read(pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            ready: condition(pod, "Ready") == "True",
            terminating: !pod["metadata"]["deletionTimestamp"].is_null(),
        }
    }

    fn serves(&self) -> bool {
        self.ready && !self.terminating
    }
}

fn workload(kind: &str, name: &str) -> Value {
    let container = json!({"name": "doze", "image": "none", "command": ["sleep", DOZE]});
    let labels = json!({"app": name});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 5});
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": 3, "serviceName": name, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })
}

#[test]
fn replicas_are_upgraded_under_load_and_a_machine_is_cut_off_and_comes_back() {
    if let Some(why) = MachineNetwork::impossible() {
        return skip(&why);
    }
    let mut site = Site::install();
    for (host, _) in MACHINES {
        site.join(host);
    }
    eventually("all machines are ready", || MACHINES.iter().all(|(host, _)| site.is_ready(host)).then_some(()));
    site.apply(&workload("ReplicaSet", "web"));
    site.apply(&workload("StatefulSet", "db"));
    eventually("all pods serve", || (site.pods().iter().filter(|pod| pod.serves()).count() == 6).then_some(()));
    let dozing = |site: &Site, host: &str| site.network.processes(host, &format!("sleep {DOZE}"));
    assert_eq!(MACHINES.iter().map(|(host, _)| dozing(&site, host).len()).sum::<usize>(), 6, "one process for each");

    let before = site.pods();
    upgrade_under_load(&mut site);
    assert_eq!(site.not_ready_events(), [""; 0], "no node was marked during the upgrade");
    assert_eq!(site.pods(), before, "no pod was touched");

    let stranded: Vec<Pod> = before.into_iter().filter(|pod| pod.node == CUT).collect();
    assert!(!stranded.is_empty(), "pods are spread over the machines");
    let left_behind = dozing(&site, CUT);
    assert_eq!(left_behind.len(), stranded.len());
    site.network.pull_cable(CUT);
    eventually("its pods are evicted, and those of the ReplicaSet run elsewhere", || {
        let pods = site.pods();
        let marked = stranded.iter().all(|gone| pods.iter().any(|pod| pod.uid == gone.uid && pod.terminating));
        let web = pods.iter().filter(|pod| pod.name.starts_with("web-") && pod.serves()).count();
        (marked && web == 3).then_some(())
    });
    assert_eq!(dozing(&site, CUT), left_behind, "a machine that is cut off goes on");
    assert_no_name_runs_twice(&site);

    let running_when_ready = site.running_when_ready(CUT, left_behind);
    site.network.plug_cable(CUT);
    eventually("the machine is ready again", || {
        assert_no_name_runs_twice(&site);
        site.is_ready(CUT).then_some(())
    });
    assert_eq!(running_when_ready.join().unwrap(), [0; 0], "all were to be stopped before");
    eventually("every pod is accounted for", || {
        let pods = site.pods();
        let named = |name: &str| pods.iter().filter(|pod| pod.name == name).count() == 1;
        let whole = pods.len() == 6 && pods.iter().all(Pod::serves);
        (whole && named("db-0") && named("db-1") && named("db-2")).then_some(())
    });
    let lost = site.not_ready_events();
    assert!(lost.iter().all(|node| node == CUT), "only {CUT} was away: {lost:?}");
    eventually("one process for each pod", || {
        let running = MACHINES.iter().map(|(host, _)| dozing(&site, host).len()).sum::<usize>();
        (running == 6).then_some(())
    });
    require_sound_runs(&site);
    leave(&mut site);
}

/// A client writes all the time, while one replica after the other is replaced.
fn upgrade_under_load(site: &mut Site) {
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (stop, dir) = (Arc::clone(&stop), site.path("fleet/operator").to_str().unwrap().to_owned());
        let mut base = site.network.at("switch", &MUSTER);
        base.args(["--dir", &dir, "--timeout", "30s", "annotate", "node", "m1", "--overwrite"]);
        let words: Vec<String> = base.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
        std::thread::spawn(move || {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut command = std::process::Command::new("ip");
                let output = command.args(&words).arg(format!("count={written}")).output().unwrap();
                assert!(output.status.success(), "write {written}: {}", text(&output.stderr));
                written += 1;
            }
            written
        })
    };
    for (host, _) in REPLICAS {
        site.restart_replica(host);
    }
    stop.store(true, Ordering::Relaxed);
    let written = writer.join().expect("no write is lost");
    let nodes = site.items(&["get", "nodes"]);
    let node = nodes.iter().find(|node| node["metadata"]["name"] == "m1").unwrap();
    let last: i64 = written - 1;
    assert_eq!(node["metadata"]["annotations"]["count"], last.to_string());
}

/// Two pods under one name may run only if the cluster shows it: the older is Terminating there.
fn assert_no_name_runs_twice(site: &Site) {
    let told: Vec<(String, String)> = MACHINES.iter().flat_map(|(host, _)| site.told(host)).collect();
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    told.iter().for_each(|(name, uid)| by_name.entry(name).or_default().push(uid));
    for (name, uids) in by_name.into_iter().filter(|(_, uids)| uids.len() > 1) {
        let known = site.pods();
        let is_reported = |uid: &&str| known.iter().any(|pod| pod.uid == **uid && pod.terminating);
        let unreported = uids.iter().filter(|uid| !is_reported(uid)).count();
        assert!(unreported <= 1, "{name} runs as {uids:?}, and the fleet knows {known:?}");
    }
}

/// The agents' own journals of the whole test say the same.
fn require_sound_runs(site: &Site) {
    let journals = MACHINES.map(|(host, _)| site.state_dir(host).join("runtime/runs.jsonl"));
    let noted = runs::require_sound_in(journals.iter().map(PathBuf::as_path));
    assert!(noted >= 6, "{noted} runs were noted");
}

/// Agents leave their pods running; the pods are the test's to end.
fn leave(site: &mut Site) {
    for (host, _) in MACHINES {
        let mut child = site.running.remove(host).unwrap();
        signal("-TERM", child.id());
        assert!(child.wait().unwrap().success(), "{host} says goodbye");
    }
    let left = MACHINES.map(|(host, _)| site.network.processes(host, &format!("sleep {DOZE}")).len());
    assert_eq!(left.iter().sum::<usize>(), 6, "pods outlive their agents");
    for pid in MACHINES.iter().flat_map(|(host, _)| site.network.processes(host, "")) {
        signal("-KILL", pid);
        wait_gone(pid);
    }
}
