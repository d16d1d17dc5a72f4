//! A runtime in a directory of its own, and somebody who listens to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use muster_node_agent::pods::{Inbox, PodNews, PodSpec, PodUid, Runtime};
use muster_node_agent::process::{ProcessConfig, ProcessRuntime};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// On a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const HELPER: &str = env!("CARGO_BIN_EXE_muster-process-helper");

pub struct Bench {
    pub dir: TempDir,
    pub config: ProcessConfig,
    pub runtime: Option<Arc<ProcessRuntime>>,
    pub inbox: Arc<Inbox>,
    pub lost: bool,
    newest: BTreeMap<PodUid, PodNews>,
    uids: Vec<PodUid>,
}

/// Whatever a test left behind ends with it.
impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.uids.iter().flat_map(|uid| processes_of(*uid)) {
            kill(pid);
        }
    }
}

impl Bench {
    /// With a directory, but without a runtime.
    pub fn vacant() -> Self {
        let config =
            ProcessConfig { shim: HELPER.into(), log_bytes: 4096, ..ProcessConfig::of_this_machine().unwrap() };
        Self {
            dir: tempfile::tempdir().unwrap(),
            config,
            runtime: None,
            inbox: Arc::new(Inbox::default()),
            lost: false,
            newest: BTreeMap::new(),
            uids: Vec::new(),
        }
    }

    pub fn new() -> Self {
        let mut bench = Self::vacant();
        bench.open();
        bench
    }

    /// As an agent that starts would.
    pub fn open(&mut self) {
        self.close();
        let runtime = ProcessRuntime::open(self.dir.path(), self.config.clone()).unwrap();
        runtime.report_to(self.inbox.news(0));
        self.runtime = Some(runtime);
        self.hear();
    }

    /// The agent is gone; what it ran is not. Its tasks hold the directory until they end.
    pub fn close(&mut self) {
        self.runtime = None;
        self.newest.clear();
        self.inbox.take();
    }

    pub fn runtime(&self) -> &ProcessRuntime {
        self.runtime.as_ref().unwrap()
    }

    /// A pod that nobody else has.
    pub fn uid(&mut self) -> PodUid {
        let uid = PodUid(rand::random());
        self.uids.push(uid);
        uid
    }

    pub fn start(&mut self, manifest: &Value) -> PodUid {
        let uid = self.uid();
        self.runtime().start(spec(uid, manifest));
        uid
    }

    pub fn pod_dir(&self, uid: PodUid) -> PathBuf {
        self.dir.path().join("pods").join(uid.to_string())
    }

    pub fn log(&self, uid: PodUid, container: &str) -> String {
        std::fs::read_to_string(self.pod_dir(uid).join(format!("logs/{container}.log"))).unwrap_or_default()
    }

    fn hear(&mut self) {
        for gathered in self.inbox.take().into_values() {
            self.lost |= gathered.lost;
            for (uid, news) in gathered.pods {
                let known = self.newest.insert(uid, news);
                assert!(known.is_none_or(|known| !known.stopped), "an end is told once");
            }
        }
    }

    pub fn newest(&self, uid: PodUid) -> Option<&PodNews> {
        self.newest.get(&uid)
    }

    pub async fn until(&mut self, uid: PodUid, wanted: impl Fn(&PodNews) -> bool) -> PodNews {
        let end = Instant::now() + PATIENCE;
        loop {
            self.hear();
            if let Some(news) = self.newest.get(&uid).filter(|news| wanted(news)) {
                return news.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            let inbox = Arc::clone(&self.inbox);
            assert!(timeout(left, inbox.arrived()).await.is_ok(), "last heard: {:?}", self.newest.get(&uid));
        }
    }

    pub async fn until_ready(&mut self, uid: PodUid) -> PodNews {
        self.until(uid, |news| news.status.ready).await
    }

    pub async fn until_stopped(&mut self, uid: PodUid) -> PodNews {
        self.until(uid, |news| news.stopped).await
    }

    /// The process of the pod's first container.
    pub fn pid(&self, uid: PodUid) -> Option<i32> {
        let state = std::fs::read(self.pod_dir(uid).join("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&state).ok()?;
        state["containers"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }
}

pub fn spec(uid: PodUid, manifest: &Value) -> PodSpec {
    let (namespace, name) = ("default".to_owned(), "web".to_owned());
    PodSpec { namespace, name, uid, manifest: Bytes::from(manifest.to_string()) }
}

/// A pod of one container `c`.
pub fn shell(policy: &str, script: &str) -> Value {
    let container = json!({ "name": "c", "command": ["sh", "-c", script] });
    json!({ "metadata": { "name": "web" }, "spec": { "restartPolicy": policy, "containers": [container] } })
}

/// Processes, dead or alive, whose environment names the pod.
pub fn processes_of(uid: PodUid) -> Vec<i32> {
    let mark = format!("MUSTER_POD_UID={uid}");
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(marked).collect()
}

pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

pub async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
